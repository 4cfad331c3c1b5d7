#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_ATP_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_ATP_H_

#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// What mechanism atp computes on a device (attention/device/atp.h). All pointers are the device's;
// tables are written once a step and read at every layer.

// Query rows of one KV head that read the same tokens, at most so many.
inline constexpr int kAtpTileRows = 16;
// Tokens that a row folds into one part of its softmax: of multiples of it, or whole blocks.
inline constexpr int64_t kAtpPartTokens = 256;
// What the kernels have registers and shared memory for.
inline constexpr int64_t kAtpMostHeadDim = 256;
inline constexpr int64_t kAtpMostRank = 512;

// Of the model. Pages are device_attention.h's; a principal block is principal_block.h's, its K'
// [rank + 1][key_width], V' [rank + 1][value_width], all in `type` but for what is coded.
struct AtpModel {
  int64_t n_layers = 0, n_kv_heads = 0, group = 0, head_dim = 0;
  int64_t key_width = 0, value_width = 0;
  StorageType type = StorageType::kFloat32;
};

// One sequence of a step.
struct AtpSequence {
  int64_t first_page = 0;   // in the table of pages
  int64_t first_block = 0;  // in the table of blocks
  int64_t first_position = 0;
  int64_t first_row = 0;  // of the step
  int64_t block_tokens = 0, rank = 0, n_sinks = 0;
  int64_t n_bases = 0;  // 1, or n_kv_heads
  int64_t n_refined = 0;
  // Blocks are read by their moments (Eq. 8) and hold no U. Merging, block number b stands for as
  // many as the largest power of two that divides b + 1, itself the last.
  bool is_linear = false, merges = false;
  // A block's slab: [layer, KV head] of kept_bytes each, then parts (layer, basis), of which block
  // number b begins with part n_parts - b (modulo n_parts).
  int64_t kept_bytes = 0, part_bytes = 0, u_bytes = 0;
  int64_t key_bytes = 0, value_bytes = 0;  // of one KV head's K', and V'
  // In how many bits U (8 or 4), K' and V' (8) and kept tokens (8) are coded; 0: in the model's
  // type. Codes take as many bytes as the host's; how they lie is the kernels' own.
  int32_t u_bits = 0, principal_bits = 0, kept_bits = 0;

  // Blocks that block `number` stands for, and their tokens but sinks.
  constexpr int64_t NumBlocks(int64_t number) const {
    return merges ? (number + 1) & -(number + 1) : 1;
  }
  constexpr int64_t NumTokens(int64_t number) const {
    return NumBlocks(number) * block_tokens - (number < NumBlocks(number) ? n_sinks : 0);
  }
};

// Keys and values of a step's rows into their pages.
struct AtpWriteArgs {
  AtpModel model;
  const AtpSequence* sequences = nullptr;
  void* const* pages = nullptr;
  const int32_t* row_sequences = nullptr;  // by row of the launch: its sequence
  const int32_t* row_offsets = nullptr;    // and its place among the sequence's rows
  int64_t n_rows = 0;
  int64_t layer = 0;
  const float *k = nullptr, *v = nullptr;  // row i of the step at k + i * ld
  int64_t ld = 0;
};

// One basis of one block that a step closes; or of one KV head of it that is merged with the block
// n_merged before it, which stands for as many blocks, as block `number` does by then.
struct AtpCompressTask {
  int32_t sequence = 0;
  int32_t number = 0;   // the block's
  int32_t kv_head = 0;  // of its first head
  int32_t n_heads = 0;  // that share the basis
  int32_t n_merged = 0;
  int32_t n = 0;        // tokens, without sinks; merging, 2 rank + 1
  int32_t n_cols = 0;   // of the matrix: [K_1 V_1 .. ] of its heads
  int32_t size = 0;     // min(n, n_cols)
  int32_t n_found = 0;  // min(rank, size): rows of U^T that are sought
};

// Fills blocks from pages: for every task the centred, scaled matrix m [n, n_cols], its basis U by
// subspace iteration on the smaller Gram matrix (Halko, Martinsson, Tropp 2011, Algorithm 4.4, a
// fixed number of rounds, with the Chebyshev polynomials of Zhou, Saad 2007), U^T m, and what is
// stored of them. Scratch of task i of the launch is at i * stride of each array.
//
// Merging, m is both blocks' [K' V'] and the difference of their means, times the root of n1 n2 /
// (n1 + n2): it has the second moments of all their tokens.
struct AtpCompressArgs {
  AtpModel model;
  const AtpSequence* sequences = nullptr;
  void* const* pages = nullptr;
  void* const* blocks = nullptr;
  const AtpCompressTask* tasks = nullptr;
  int64_t n_tasks = 0;
  int64_t layer = 0;
  // The largest of the tasks.
  int64_t max_n = 0, max_cols = 0, max_size = 0, max_found = 0, max_rank = 0, max_heads = 0;
  int64_t max_left = 0;  // the largest n of those of more tokens than columns; 0: there are none
  float* m = nullptr;    // [max_n, max_cols]
  int64_t m_stride = 0;
  float* gram = nullptr;  // [max_size, max_size]
  int64_t gram_stride = 0;
  // U^T, its image, each [max_found, max(max_n, max_size)].
  float* basis = nullptr;
  float* image = nullptr;
  int64_t basis_stride = 0;
  float* projected = nullptr;  // [max_found, max_cols]
  int64_t projected_stride = 0;
  // By column: the mean, and what the column was divided by. [2, max_cols], and 2 of the filter;
  // then scales of U's components [max_rank].
  float* columns = nullptr;
  int64_t columns_stride = 0;
  int32_t step = 0;  // of a filter; the kernels' own
};

// Rows that are computed together: row r is query head r % group of the sequence's row r / group,
// r in [first, first + n_rows). Their parts, folded in this order: far blocks in stretches of
// kAtpPartTokens (or of one block), the last first where they are merged; exact tokens, cut at
// multiples of kAtpPartTokens, the first part begins with the sinks; tokens chosen of the far ones.
struct AtpTile {
  int32_t sequence = 0;
  int32_t n_rows = 0;
  int64_t first = 0;
  int64_t n_far_blocks = 0;
  int64_t n_far_parts = 0;
  int64_t n_parts = 0;
  // Of tiles that are computed part by part: where part 0 is saved.
  int64_t first_slot = 0;
  // Of tiles that refine: which of the launch's choices is theirs.
  int64_t choice = 0;
  // Where scores of its far tokens begin: [n_kv_heads, n_rows, far tokens].
  int64_t first_score = 0;
};

// Parts [first, first + n) of a tile, for every KV head. `saved`: folded into one that is saved in
// the slot of the first; else into the rows' outputs.
enum class AtpInto : int32_t { kOutput, kSlot };
struct AtpItem {
  int32_t tile = 0;
  AtpInto into = AtpInto::kOutput;
  int64_t first = 0;
  int64_t n = 0;
};

// What the kernels that read tokens share.
struct AtpReadArgs {
  AtpModel model;
  const AtpSequence* sequences = nullptr;
  const AtpTile* tiles = nullptr;
  void* const* pages = nullptr;
  void* const* blocks = nullptr;
  int64_t layer = 0;
  int64_t max_rank = 0;       // of the launch
  int64_t max_tile_rows = 0;  // of the launch
  const float* q = nullptr;   // row i of the step at q + i * ld
  int64_t ld = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
  // Slot s of KV head h: [max_tile_rows][head_dim + 2], a row's sum of values, the maximum of its
  // scores and the sum of its weights, at (s * n_kv_heads + h) * max_tile_rows * (head_dim + 2).
  float* slots = nullptr;
  float* scores = nullptr;   // of far tokens
  float* weights = nullptr;  // of far tokens: where a tile's scores begin, [n_kv_heads, far tokens]
  int32_t* chosen = nullptr;  // [choice, n_kv_heads, max_refined], ascending
  int64_t max_refined = 0;
};

// Reads items; those of far blocks of tiles that refine read the scores that are left there.
struct AtpAttendArgs {
  AtpReadArgs read;
  const AtpItem* items = nullptr;
  int64_t n_items = 0;
};

// Scores of far tokens, of tiles that refine; item.first and n are far blocks.
using AtpScoreArgs = AtpAttendArgs;

// Of each token and KV head of tiles that refine (each of one token), chooses the n_refined far
// tokens of the highest weight summed over query heads, of equal ones the first, and hides them
// (their scores become -infinity). The exact parts are in their slots.
struct AtpChooseArgs {
  AtpReadArgs read;
  const int32_t* chosen_tiles = nullptr;
  int64_t n_tiles = 0;
};

// Folds the slots of tiles into their rows' outputs.
struct AtpCombineArgs {
  AtpReadArgs read;
  const int32_t* combined_tiles = nullptr;
  int64_t n_tiles = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_ATP_H_
