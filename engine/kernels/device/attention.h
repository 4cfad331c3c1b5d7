#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_ATTENTION_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_ATTENTION_H_

#include <cstddef>
#include <cstdint>

#include "engine/base/round_up.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// Exact attention over pages of keys and values on a device. All pointers are the device's.
//
// A page holds kPageTokens tokens: for each layer and KV head keys [64, head_dim], then values
// [64, head_dim], in the cache's type.
//
// A closed page is a full page quantized to 8 or 4 bits by the host's rule
// (engine/attention/pages/quantized_kv.h): a number is middle + scale * code. For each layer and KV
// head the page holds
//   keys, values   [64, head_dim] each        codes plus 2^(bits - 1); of two codes of 4 bits the
//                                             first is in a byte's lower half
//   key numbers    [2, head_dim]              for 32 tokens of a channel
//   value numbers  [64, ceil(head_dim / 32)]  for 32 channels of a token
// where the numbers of a group are 32 bits: its middle, in bf16, above its scale.
//
// A row is one query head of one token. Its softmax runs over tiles of keys that begin at fixed
// positions; it begins anew every SpanPages pages, and the spans are folded in order. So a
// row's bits depend neither on its tile of rows nor on how many blocks compute its spans.
//
// Returns the pages of a span for a row that sees n_before tokens before its own: 2 (128 tokens),
// so that the spans of a short sequence give work to many blocks; twice as many whenever there
// would be more than 16, because folding takes time.
inline constexpr int64_t SpanPages(int64_t n_before) {
  int64_t pages = 2;
  while (n_before >= 16 * kPageTokens * pages) pages *= 2;
  return pages;
}

inline constexpr int kClosedGroup = 32;

// Return bytes of one KV head of a closed page at one layer: of its keys (or values), and of all.
inline constexpr int64_t ClosedPlaneBytes(int64_t head_dim, int64_t bits) {
  return 64 * head_dim * bits / 8;
}
inline constexpr int64_t ClosedTileBytes(int64_t head_dim, int64_t bits) {
  const int64_t n_groups = 2 * head_dim + 64 * ((head_dim + kClosedGroup - 1) / kClosedGroup);
  return 2 * ClosedPlaneBytes(head_dim, bits) + n_groups * static_cast<int64_t>(sizeof(uint32_t));
}

// RowTile says how many rows a block takes at once.
enum class RowTile {
  kFew,   // the rows of a token or two; reading the cache takes the time
  kMany,  // the rows of a prompt, which share the keys and values that are read
};

inline constexpr int64_t kMaxDeviceHeadDim = 512;

// Returns whether tensor cores compute attention, with queries and weights rounded to bf16.
inline bool HasTensorTiles(StorageType cache_type, int64_t head_dim) {
  const bool known =
      head_dim == 32 || head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128;
  return cache_type == StorageType::kBFloat16 && known;
}

// Returns the most rows in a tile.
inline int64_t MaxTileRows(RowTile tile, StorageType cache_type, int64_t head_dim) {
  return tile == RowTile::kMany && HasTensorTiles(cache_type, head_dim) ? 128 : 16;
}

// The place of a row of the step in the cache.
struct CacheSlot {
  std::byte* page = nullptr;  // nullptr: none
  int32_t row = 0;            // row of the step
  int32_t slot = 0;           // token of the page
};

// Places of rows of the step, each at most once.
struct CacheSlots {
  const CacheSlot* slots = nullptr;
  int64_t n_slots = 0;
  StorageType cache_type = StorageType::kFloat32;
};

struct WriteKvArgs {
  CacheSlots pages;
  int64_t layer = 0, n_kv_heads = 0, head_dim = 0;
  const float* k = nullptr;  // row i, [n_kv_heads * head_dim], is at k + i * ld, and so for v
  const float* v = nullptr;
  int64_t ld = 0;
};

// A full page and the closed page that it becomes; nullptr: none.
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
// the pages that they read. A task covers all KV heads.
struct RowTileTask {
  int64_t pages = 0;           // page i of the sequence is AttendArgs::pages[pages + i]
  int64_t closed_pages = 0;    // closed page i is AttendArgs::pages[closed_pages + i]
  int32_t first_position = 0;  // of the segment, which is cached up to end_position
  int32_t end_position = 0;
  int32_t first_step_row = 0;            // the row of the step that is the segment's first token
  int32_t first = 0, n_rows = 0;         // n_rows 0: the task is empty
  int32_t begin_page = 0, end_page = 0;  // one span's pages where n_parts > 1
  int32_t span_pages = 2;                // SpanPages of all rows
  // 1: the task writes outputs. Otherwise n_parts tasks share the tile, and this task writes rows
  // part .. part + n_rows - 1 of AttendArgs::parts for JoinParts.
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

// Computes the causal softmax of q K^T / sqrt(head_dim), times V.
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
  const float* q = nullptr;  // row i, [n_kv_heads * group * head_dim], is at q + i * ld_q
  int64_t ld_q = 0;
  float* out = nullptr;  // row i is at out + i * ld_out; pairs of floats are aligned to 8 bytes
  int64_t ld_out = 0;
  // The results in bf16, laid out like `out`, which then only keeps sums in between; nullptr: `out`
  // gets the results. Pairs are aligned to 4 bytes.
  uint16_t* rounded = nullptr;
  float* parts = nullptr;        // [part rows, n_kv_heads, head_dim]
  float* part_states = nullptr;  // [part rows, n_kv_heads, 2]: maximum (of base 2), sum
  // Bits per number of the closed pages; 0 if no page is closed. Pages before the tile's are
  // closed.
  int64_t closed_bits = 0;
};

// Returns the device bytes of one row of the parts.
inline int64_t PartRowBytes(int64_t n_kv_heads, int64_t head_dim) {
  return n_kv_heads * (head_dim + 2) * static_cast<int64_t>(sizeof(float));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_ATTENTION_H_
