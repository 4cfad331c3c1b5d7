#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_ATTENTION_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey {

// Exact attention over pages of keys and values on a device. All pointers are the device's.
//
// A page holds kPageTokens tokens: for each layer and KV head keys [64, head_dim], then values
// [64, head_dim], in the cache's type.
//
// A closed page holds what a full one was quantized to, in 8 or 4 bits, by the host's rule
// (attention/quantized_kv.h): a number is middle + scale code. For each layer and KV head
//   keys, values   [64, head_dim] each   codes, 2^(bits - 1) added: in 8 bits one a byte, in 4 the
//                                        first of two numbers in a byte's lower half
//   key numbers    [2, head_dim]         of 32 tokens of a channel
//   value numbers  [64, ceil(head_dim / 32)]  of 32 channels of a token
// where the numbers of a group are 32 bits: its middle, in bf16, above its scale.
//
// A row is one query head of one token. Its softmax runs over tiles of keys that begin at fixed
// positions; every kSpanTokens tokens it begins anew, and the spans are folded into each other in
// their order. So a row's bits do not depend on the tile of rows that it is computed in, nor on
// whether its spans are computed by one block or by several.
inline constexpr int64_t kSpanTokens = 512;

inline constexpr int kClosedGroup = 32;

// Bytes of a closed page's keys, or values, of one KV head at one layer; and of all of that head.
inline constexpr int64_t ClosedPlaneBytes(int64_t head_dim, int64_t bits) {
  return 64 * head_dim * bits / 8;
}
inline constexpr int64_t ClosedTileBytes(int64_t head_dim, int64_t bits) {
  const int64_t n_groups = 2 * head_dim + 64 * ((head_dim + kClosedGroup - 1) / kClosedGroup);
  return 2 * ClosedPlaneBytes(head_dim, bits) + n_groups * static_cast<int64_t>(sizeof(uint32_t));
}

// How many rows a block takes at once.
enum class RowTile {
  kFew,   // of a token or two, for which all of the device's memory is read
  kMany,  // of a prompt, which share what is read
};

inline constexpr int64_t kMaxDeviceHeadDim = 512;

// Whether a warp's products of matrices compute it: queries and weights are rounded to bf16 then.
inline bool HasTensorTiles(StorageType cache_type, int64_t head_dim) {
  const bool known =
      head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128;
  return cache_type == StorageType::kBFloat16 && known;
}

// The most rows in a tile.
inline int64_t MaxTileRows(RowTile tile, StorageType cache_type, int64_t head_dim) {
  return tile == RowTile::kMany && HasTensorTiles(cache_type, head_dim) ? 128 : 16;
}

// Where a row of the step is cached.
struct CacheSlot {
  std::byte* page = nullptr;
  int32_t row = 0;   // of the step
  int32_t slot = 0;  // in the page
};

struct WriteKvArgs {
  const CacheSlot* slots = nullptr;
  int64_t n_slots = 0;
  StorageType cache_type = StorageType::kFloat32;
  int64_t layer = 0, n_kv_heads = 0, head_dim = 0;
  const float* k = nullptr;  // [n_kv_heads * head_dim] of row i at k + i * ld, and so v
  const float* v = nullptr;
  int64_t ld = 0;
};

// A full page, and where it is closed to; nullptr: nothing is.
struct ClosePageTask {
  const std::byte* page = nullptr;
  std::byte* closed = nullptr;
  int32_t bits = 8;  // or 4
};

struct ClosePagesArgs {
  const ClosePageTask* tasks = nullptr;
  int64_t n_tasks = 0;
  StorageType cache_type = StorageType::kFloat32;
  int64_t layer = 0, n_kv_heads = 0, head_dim = 0;
};

// Rows first .. first + n_rows - 1 of a segment, token by token (row = token * group + head), and
// what they read. Over all KV heads.
struct RowTileTask {
  int64_t pages = 0;           // page i of the sequence is AttendArgs::pages[pages + i]
  int64_t closed_pages = 0;    // and closed page i AttendArgs::pages[closed_pages + i]
  int32_t first_position = 0;  // of the segment, which is cached up to end_position
  int32_t end_position = 0;
  int32_t first_step_row = 0;            // the row of the step that is the segment's first token
  int32_t first = 0, n_rows = 0;         // n_rows 0: nothing
  int32_t begin_page = 0, end_page = 0;  // of one span where n_parts > 1
  // 1: writes outputs; else the tile is spread over n_parts tasks, and this one writes rows part ..
  // part + n_rows - 1 of AttendArgs::parts for JoinParts.
  int32_t n_parts = 1;
  int32_t part = 0;
};

// Rows that several tasks computed. Part i of row r is row part + i * n_rows + r of the parts.
struct JoinTask {
  int32_t first_step_row = 0;
  int32_t first = 0, n_rows = 0;
  int32_t n_parts = 0;
  int32_t part = 0;
};

// Softmax of q K^T / sqrt(head_dim), times V, causal.
struct AttendArgs {
  RowTile tile = RowTile::kFew;
  const RowTileTask* tasks = nullptr;
  int64_t n_tasks = 0;
  const JoinTask* joins = nullptr;
  int64_t n_joins = 0;
  const std::byte* const* pages = nullptr;
  StorageType cache_type = StorageType::kFloat32;
  int64_t layer = 0, n_kv_heads = 0, group = 0;  // group: query heads of a KV head
  int64_t head_dim = 0;                          // at most kMaxDeviceHeadDim
  int64_t n_before = 0;      // a token sees itself and n_before tokens before it
  const float* q = nullptr;  // [n_kv_heads * group * head_dim] of row i at q + i * ld_q
  int64_t ld_q = 0;
  float* out = nullptr;  // the same at out + i * ld_out; pairs of floats are aligned to 8 bytes
  int64_t ld_out = 0;
  float* parts = nullptr;        // [part rows, n_kv_heads, head_dim]
  float* part_states = nullptr;  // [part rows, n_kv_heads, 2]: maximum (of base 2), sum
  // Not 0: pages before the one that all rows of a tile are in are closed ones, of so many bits.
  int64_t closed_bits = 0;
};

// Device bytes of one part row.
inline int64_t PartRowBytes(int64_t n_kv_heads, int64_t head_dim) {
  return n_kv_heads * (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_ATTENTION_H_
