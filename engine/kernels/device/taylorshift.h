#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_TAYLORSHIFT_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_TAYLORSHIFT_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// TaylorShift on a device (engine/attention/taylorshift/state.h): weights 1 + s + s^2 / 2, summed
// over cached tokens, or as phi(q) S through a state S = sum of phi(k)^T [v, 1] of a KV head. All
// pointers are the device's.
//
// A step's rows are cut into blocks, and what a block reads into pieces: each piece of a block
// (slices of S, some pages) is summed by itself into a slot; a row's slots of the state are added
// up in their order, those of pages too, and then both. Slices and spans of pages begin at absolute
// features and positions, and every sum inside one is a chain that belongs to one row, so that a
// row's bits depend on neither blocks nor steps.

// Rows of a block at most: of those with few, and of others.
inline constexpr int64_t kTaylorFewRows = 16;
inline constexpr int64_t kTaylorManyRows = 64;

// Features of a slice, a multiple of 32: as many as keep a row's slots small beside S.
constexpr int64_t TaylorSliceFeatures(int64_t head_dim) { return (2 * head_dim + 31) / 32 * 32; }

// Pages of a span: 256 tokens keep a row's slot small beside what is read.
inline constexpr int64_t kTaylorSpanPages = 4;

// One segment of a step.
struct TaylorSequence {
  int64_t first_position = 0;
  int64_t first_row = 0;         // of the step's rows
  int64_t first_query = 0;       // of TaylorStep::queries
  int64_t first_page = 0;        // of those that are named
  int64_t first_page_entry = 0;  // of TaylorStep::pages: where that page is named
  // Of layer 0 and KV head 0, those of others follow, head_floats each: S without the weights
  // [n_features, n_columns], then the weights [n_features]. nullptr: none.
  float* state = nullptr;
  bool is_normalized = true;  // else the plain variant
};

// A row of the step.
struct TaylorRow {
  int32_t sequence = 0;
  int32_t row = 0;  // of the segment
};

// Rows of one sequence: row r of its segment's tokens times the query heads of a KV head is head r
// % group of token r / group.
struct TaylorBlock {
  int32_t sequence = 0;
  int32_t n_rows = 0;
  int64_t first_row = 0;
  // Its slots, [n_slots][n_rows], among TaylorStep::slots.
  int64_t first_slot = 0;
  int64_t n_slots = 0;
  int64_t n_state_slots = 0;  // the first of them
};

// What a block reads into one of its slots: a slice of the state, or pages of one span; where
// TaylorHasTiles, any slices or spans one after another.
struct TaylorPiece {
  int32_t block = 0;
  int32_t slot = 0;
  int32_t begin = 0, end = 0;
};

// Pages that a sequence's state takes in.
struct TaylorFold {
  int32_t sequence = 0;
  int32_t first_page = 0, end_page = 0;
};

// What every kernel of a step at one layer is given.
struct TaylorStep {
  int64_t layer = 0;
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t n_columns = 0;    // of a cached value and of S: head_dim or more, a multiple of 4
  int64_t n_features = 0;   // of S
  int64_t head_floats = 0;  // of one KV head's state
  StorageType cache_type = StorageType::kFloat32;
  const TaylorSequence* sequences = nullptr;
  // Pages of layers times KV heads times [keys [head_dim, 64], values [64, n_columns]].
  std::byte* const* pages = nullptr;
  float* queries = nullptr;  // scaled, [n_rows, n_heads * head_dim]
  float* slots = nullptr;    // [.., n_kv_heads, n_columns + 4]: sums, then the sum of weights
};

// Whether tensor cores compute the step: with numbers that bf16 has not as sums of two that it has,
// to about 2^-16.
inline bool TaylorHasTiles(const TaylorStep& s) {
  return s.cache_type == StorageType::kBFloat16 && s.head_dim % 32 == 0 && s.head_dim <= 128;
}

// Caches the rows' keys, as unit vectors where the variant is normalized, and values; scales their
// queries.
struct TaylorWriteArgs {
  TaylorStep step;
  const TaylorRow* rows = nullptr;
  int64_t n_rows = 0;
  const float* tau = nullptr;  // [n_heads]
  // Row i of the step at q + i * ld and so on.
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t ld = 0;
};

// S += the pages' tokens, page after page.
struct TaylorFoldArgs {
  TaylorStep step;
  const TaylorFold* folds = nullptr;
  int64_t n_folds = 0;
};

// Pieces, all of blocks of at most max_rows, into slots.
struct TaylorReadArgs {
  TaylorStep step;
  const TaylorBlock* blocks = nullptr;
  const TaylorPiece* pieces = nullptr;
  int64_t n_pieces = 0;
  int64_t max_rows = 0;  // kTaylorFewRows or kTaylorManyRows
};

// Rows' slots, added up, become outputs.
struct TaylorFinishArgs {
  TaylorStep step;
  const TaylorBlock* blocks = nullptr;
  int64_t n_blocks = 0;
  int64_t max_rows = 0;
  float* out = nullptr;  // row i of the step at out + i * ld_out
  int64_t ld_out = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_TAYLORSHIFT_H_
