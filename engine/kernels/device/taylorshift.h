#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_TAYLORSHIFT_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_TAYLORSHIFT_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// TaylorShift on a device (engine/attention/taylorshift/state.h): weights 1 + s + s^2 / 2, summed
// over cached tokens, or as phi(q) S through a state S = sum of phi(k)^T [v, 1] of a KV head.
// Tokens in a window have weights exp(s), summed apart under exp(-max). All pointers are the
// device's.
//
// A step's rows are cut into blocks, and the reads of a block into pieces. A piece (slices of S, or
// some pages) is summed by itself into a slot; a row's slots of the state are added up in order,
// its slots of far pages too, then both sums, and last the slots of the window, under a common
// scale. Slices and spans of pages begin at absolute features and positions, and every sum inside
// one is a chain that belongs to one row, so that a row's bits depend on neither blocks nor steps.

// The most rows of a block: where sequences have few rows, and elsewhere.
inline constexpr int64_t kTaylorFewRows = 16;
inline constexpr int64_t kTaylorManyRows = 64;

// Returns the features of a slice, a multiple of 32 that keeps a row's slots small beside S.
constexpr int64_t TaylorSliceFeatures(int64_t key_dim) { return (2 * key_dim + 31) / 32 * 32; }

// Pages of a span: 256 tokens keep a row's slot small beside the pages that are read.
inline constexpr int64_t kTaylorSpanPages = 4;

// In the place of an index: this entry of a table does nothing.
inline constexpr int32_t kTaylorNone = -1;

// One segment of a step.
struct TaylorSequence {
  int64_t first_position = 0;
  int64_t first_row = 0;         // row of the step
  int64_t first_query = 0;       // index of TaylorStep::queries
  int64_t first_page = 0;        // the first page that TaylorStep::pages names
  int64_t first_page_entry = 0;  // where TaylorStep::pages names that page
  // The state of layer 0 and KV head 0; those of others follow, head_floats each: S without the
  // weights [n_features, n_columns], then the weights [n_features]. nullptr: no state.
  float* state = nullptr;
  bool is_normalized = true;  // false: the plain variant
};

// A row of the step.
struct TaylorRow {
  int32_t sequence = kTaylorNone;
  int32_t row = 0;  // row of the segment
};

// Rows of one sequence: row r of its segment's tokens times the query heads of a KV head is head r
// % group of token r / group.
struct TaylorBlock {
  int32_t sequence = 0;
  int32_t n_rows = 0;  // 0: the block does nothing
  int64_t first_row = 0;
  // The block's slots, [n_slots][n_rows], among TaylorStep::slots.
  int64_t first_slot = 0;
  int64_t n_slots = 0;
  int64_t n_state_slots = 0;  // slots of the state, which come first
  int64_t n_near_slots = 0;   // slots of pages in the window, which come last; 0: no window
  int64_t n_far_tokens = 0;   // tokens before the window, where there is one
};

// The part of a block's reads that one slot holds: a slice of the state, or pages of one span;
// where TaylorHasTiles, any slices or spans one after another.
struct TaylorPiece {
  int32_t block = kTaylorNone;
  int32_t slot = 0;
  int32_t begin = 0, end = 0;
};

// Pages that are added to a sequence's state. Page 0 begins the state, whose memory may hold
// anything before.
struct TaylorFold {
  int32_t sequence = kTaylorNone;
  int32_t first_page = 0, end_page = 0;
};

// The arguments that all kernels of a step share at one layer.
struct TaylorStep {
  int64_t layer = 0;
  int64_t n_heads = 0, n_kv_heads = 0;
  int64_t head_dim = 0;     // numbers of a value
  int64_t key_dim = 0;      // numbers of a query and of a key
  int64_t n_columns = 0;    // columns of a cached value and of S: >= head_dim, a multiple of 4
  int64_t n_features = 0;   // features of S
  int64_t head_floats = 0;  // floats of one KV head's state
  StorageType cache_type = StorageType::kFloat32;
  const TaylorSequence* sequences = nullptr;
  // A page holds, for each layer and KV head, keys [key_dim, 64] and values [64, n_columns].
  std::byte* const* pages = nullptr;
  float* queries = nullptr;  // scaled, [n_rows, n_heads * key_dim]
  // The same for tokens in the window; nullptr: there is none.
  float* near_queries = nullptr;
  // [.., n_kv_heads, n_columns + 4]: sums, the sum of weights, and the largest score of a slot of
  // the window.
  float* slots = nullptr;
};

// Returns whether tensor cores compute the step. They see a number as the sum of two of bf16, exact
// to about 2^-16.
inline bool TaylorHasTiles(const TaylorStep& s) {
  return s.cache_type == StorageType::kBFloat16 && s.key_dim == s.head_dim &&
         s.head_dim % 32 == 0 && s.head_dim <= 128;
}

// Caches the rows' keys, as unit vectors where the variant is normalized, and values; scales their
// queries.
struct TaylorWriteArgs {
  TaylorStep step;
  const TaylorRow* rows = nullptr;
  int64_t n_rows = 0;
  const float* tau = nullptr;         // [n_heads]
  const float* tau_window = nullptr;  // [n_heads], read where there is a window
  // Row i of the step is at q + i * ld, and so for k and v.
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  int64_t ld = 0;
};

// Adds the pages' tokens to S, page after page.
struct TaylorFoldArgs {
  TaylorStep step;
  const TaylorFold* folds = nullptr;
  int64_t n_folds = 0;
};

// Reads pieces into slots. All their blocks have at most max_rows rows.
struct TaylorReadArgs {
  TaylorStep step;
  const TaylorBlock* blocks = nullptr;
  const TaylorPiece* pieces = nullptr;
  int64_t n_pieces = 0;
  int64_t max_rows = 0;  // kTaylorFewRows or kTaylorManyRows
  bool is_near = false;  // pages in the window
};

// Adds up the slots of rows into their outputs.
struct TaylorFinishArgs {
  TaylorStep step;
  const TaylorBlock* blocks = nullptr;
  int64_t n_blocks = 0;
  int64_t max_rows = 0;
  float* out = nullptr;  // row i of the step is at out + i * ld_out
  int64_t ld_out = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_TAYLORSHIFT_H_
