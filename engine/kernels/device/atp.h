#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_ATP_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_ATP_H_

#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// The kernels of mechanism atp on a device (engine/attention/atp/device.h). All pointers are the
// device's; tables are written once a step and read at every layer.

// The most query rows in a tile: rows of one KV head that read the same tokens.
inline constexpr int kAtpTileRows = 16;
// A row folds its softmax in parts that end at multiples of this number of tokens, or are blocks.
inline constexpr int64_t kAtpPartTokens = 256;
// The largest sizes that the kernels have registers and shared memory for.
inline constexpr int64_t kAtpMostHeadDim = 256;
inline constexpr int64_t kAtpMostRank = 512;

// Returns the bytes of shared memory that a thread block takes to read blocks of this rank, for the
// largest tile.
constexpr int64_t AtpSharedBytes(int64_t head_dim, int64_t rank) {
  constexpr int64_t kTokens = 64;  // of a tile of keys, values or a basis
  // A lane has 2, 4 or 8 numbers of a vector; the widest heads keep sums in registers.
  const int64_t width = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  const int64_t sums_width = head_dim <= 32 ? 32 : width;
  const int64_t sums = head_dim <= 128 ? kAtpTileRows * (sums_width + 2 * 32) : 0;
  const int64_t n_floats =
      kAtpTileRows * (head_dim + kTokens + 2 * (rank + 1)) + kTokens * (width + 1) + sums;
  return n_floats * static_cast<int64_t>(sizeof(float));
}

// The model's sizes. Pages are those of attention.h; a principal block is principal_block.h's, its
// K' [rank + 1][key_width], V' [rank + 1][value_width], in `type` where they are not coded.
struct AtpModel {
  int64_t n_layers = 0, n_kv_heads = 0, group = 0, head_dim = 0;
  int64_t key_width = 0, value_width = 0;
  StorageType type = StorageType::kFloat32;
};

// One sequence of a step.
struct AtpSequence {
  int64_t first_page = 0;   // index of the table of pages
  int64_t first_block = 0;  // index of the table of blocks
  int64_t first_position = 0;
  int64_t first_row = 0;  // row of the step
  int64_t block_tokens = 0, rank = 0, n_sinks = 0;
  int64_t n_bases = 0;  // 1, or n_kv_heads
  int64_t n_refined = 0;
  // is_linear: blocks are read by their moments (Eq. 8) and hold no U. merges: block number b
  // stands for the last n blocks up to itself, n the largest power of two that divides b + 1.
  bool is_linear = false, merges = false;
  // A block's slab is [layer, KV head] of kept_bytes each, then parts (layer, basis). The slab of
  // block number b begins with part n_parts - b (modulo n_parts).
  int64_t kept_bytes = 0, part_bytes = 0, u_bytes = 0;
  int64_t key_bytes = 0, value_bytes = 0;  // bytes of one KV head's K', and V'
  // Bits of the codes of U (8 or 4), of K' and V' (8) and of kept tokens (8); 0: the model's type.
  // Codes take as many bytes as the host's, in an order of the kernels' own.
  int32_t u_bits = 0, principal_bits = 0, kept_bits = 0;

  // Return the number of blocks that block `number` stands for, and of their tokens without sinks.
  constexpr int64_t NumBlocks(int64_t number) const {
    return merges ? (number + 1) & -(number + 1) : 1;
  }
  constexpr int64_t NumTokens(int64_t number) const {
    return NumBlocks(number) * block_tokens - (number < NumBlocks(number) ? n_sinks : 0);
  }
};

// One basis of one block that a step closes. Merging (n_merged > 0), one KV head of block `number`
// is joined with the block n_merged before it; by then both stand for n_merged blocks.
struct AtpCompressTask {
  int32_t sequence = 0;
  int32_t number = 0;   // number of the block
  int32_t kv_head = 0;  // the first head of the basis
  int32_t n_heads = 0;  // heads that share the basis
  int32_t n_merged = 0;
  int32_t n = 0;        // tokens without sinks; merging, 2 rank + 1
  int32_t n_cols = 0;   // columns of the matrix [K_1 V_1 .. ] of the heads
  int32_t size = 0;     // min(n, n_cols)
  int32_t n_found = 0;  // min(rank, size): rows of U^T that are sought
};

// Fills blocks from pages: computes for every task the centered, scaled matrix m [n, n_cols], its
// basis U by subspace iteration on the smaller Gram matrix (Halko, Martinsson, Tropp 2011,
// Algorithm 4.4, a fixed number of rounds, with the Chebyshev polynomials of Zhou, Saad 2007), and
// U^T m, and stores them. Scratch of task i of the launch is at i * stride of each array.
//
// Merging, m is both blocks' [K' V'] and the difference of their means times sqrt(n1 n2 / (n1 +
// n2)): m has the second moments of all their tokens.
struct AtpCompressArgs {
  AtpModel model;
  const AtpSequence* sequences = nullptr;
  void* const* pages = nullptr;
  void* const* blocks = nullptr;
  const AtpCompressTask* tasks = nullptr;
  int64_t n_tasks = 0;
  int64_t layer = 0;
  // The largest sizes of the tasks.
  int64_t max_n = 0, max_cols = 0, max_size = 0, max_found = 0, max_rank = 0, max_heads = 0;
  int64_t max_left = 0;  // the largest n of tasks with more tokens than columns; 0: no such task
  float* m = nullptr;    // [max_n, max_cols]
  int64_t m_stride = 0;
  float* gram = nullptr;  // [max_size, max_size]
  int64_t gram_stride = 0;
  // U^T and its image, each [max_found, max(max_n, max_size)].
  float* basis = nullptr;
  float* image = nullptr;
  int64_t basis_stride = 0;
  float* projected = nullptr;  // [max_found, max_cols]
  int64_t projected_stride = 0;
  // The mean and the divisor of each column, [2, max_cols]; 2 numbers of the filter; then scales of
  // U's components [max_rank].
  float* columns = nullptr;
  int64_t columns_stride = 0;
  int32_t step = 0;  // the filter's step, which only the kernels set
};

// Rows that are computed together: row r is query head r % group of the sequence's row r / group,
// r in [first, first + n_rows). Their softmax is folded from these parts, in this order: far blocks
// in stretches of kAtpPartTokens (or of one block), the last first where they are merged; exact
// tokens, cut at multiples of kAtpPartTokens, the sinks first; chosen far tokens.
struct AtpTile {
  int32_t sequence = 0;
  int32_t n_rows = 0;
  int64_t first = 0;
  int64_t n_far_blocks = 0;
  int64_t n_far_parts = 0;
  int64_t n_parts = 0;
  // Where part 0 is saved, if the tile is computed part by part.
  int64_t first_slot = 0;
  // The tile's number among the launch's choices, if the tile refines.
  int64_t choice = 0;
  // Where scores of the tile's far tokens begin: [n_kv_heads, n_rows, far tokens].
  int64_t first_score = 0;
};

// Parts [first, first + n) of a tile, for every KV head, folded into the rows' outputs or into one
// part that is saved in the slot of the first.
enum class AtpInto : int32_t { kOutput, kSlot };
// The tile of an entry that is no work.
inline constexpr int32_t kAtpNoTile = -1;
struct AtpPartRun {
  int32_t tile = 0;
  AtpInto into = AtpInto::kOutput;
  int64_t first = 0;
  int64_t n = 0;
};

// The arguments that all kernels that read tokens share.
struct AtpReadArgs {
  AtpModel model;
  const AtpSequence* sequences = nullptr;
  const AtpTile* tiles = nullptr;
  void* const* pages = nullptr;
  void* const* blocks = nullptr;
  int64_t layer = 0;
  int64_t max_rank = 0;       // the launch's largest
  int64_t max_tile_rows = 0;  // the launch's largest
  const float* q = nullptr;   // row i of the step is at q + i * ld
  int64_t ld = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
  // Slot s of KV head h, [max_tile_rows][head_dim + 2], holds a row's sum of values, the maximum of
  // its scores and the sum of its weights. It is number s * n_kv_heads + h of the slots.
  float* slots = nullptr;
  float* scores = nullptr;    // of far tokens
  float* weights = nullptr;   // of far tokens, [n_kv_heads, far tokens] from a tile's first_score
  int32_t* chosen = nullptr;  // [choice, n_kv_heads, max_refined], ascending
  int64_t max_refined = 0;
};

// Reads runs of parts. Far blocks of tiles that refine are read by the scores that AtpScore left.
struct AtpAttendArgs {
  AtpReadArgs read;
  const AtpPartRun* runs = nullptr;
  int64_t n_runs = 0;
};

// Scores the far tokens of tiles that refine; a run is of far blocks.
using AtpScoreArgs = AtpAttendArgs;

// Chooses for each KV head of tiles that refine (each has one token) the n_refined far tokens of
// the highest weight summed over query heads, the first of equal ones, and hides them: their scores
// become -infinity. The exact parts are in their slots by then.
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
