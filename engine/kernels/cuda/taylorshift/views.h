#ifndef LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_VIEWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_VIEWS_H_

// The inputs of TaylorShift's kernels: features, pages, pieces and panels of a state. Included by
// .cu files.

#include "engine/base/round_up.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/device/taylorshift.h"

namespace lowkey::taylor {

inline constexpr int kPage = kPageTokens;
inline constexpr int kDepth = 32;   // features of a panel of the state
inline constexpr int kColumns = 4;  // fp32 numbers of 16 bytes

template <int n>
struct alignas(n < 4 ? n * 4 : 16) Floats {
  float x[n];
};

__device__ inline int Tid() { return static_cast<int>(threadIdx.x); }

// A feature (state.h) is scale * x[one] * x[other]; -1: no such factor.
struct Factors {
  int one = -1, other = -1;
  float scale = 1;
};

// Returns the factors of feature f; `square` is the scale of squares: 1 for queries, 1/2 for keys.
__device__ inline Factors FactorsOf(int64_t f, const TaylorStep& s, float square) {
  const int d = static_cast<int>(s.key_dim), at = static_cast<int>(f);
  if (at >= s.n_features) return {-1, -1, 0};
  if (at == s.n_features - 1) return {};
  const int turn = at / d - 1, j = at % d;
  if (turn < 0) return {j, -1, 1};
  return {j, j + turn < d ? j + turn : j + turn - d, turn == 0 ? square : 1.0f};
}

template <typename T>
struct Tile {
  T* keys = nullptr;    // [key_dim, 64]
  T* values = nullptr;  // [64, n_columns]
};

template <typename T>
__device__ Tile<T> TileOf(const TaylorStep& s, const TaylorSequence& sequence, int64_t page,
                          int64_t kv_head) {
  std::byte* at = s.pages[sequence.first_page_entry + page - sequence.first_page];
  T* keys = reinterpret_cast<T*>(at) +
            (s.layer * s.n_kv_heads + kv_head) * kPage * (s.key_dim + s.n_columns);
  return {keys, keys + kPage * s.key_dim};
}

// Returns S of a KV head at the step's layer; its weights follow after n_features * n_columns.
__device__ inline float* StateOf(const TaylorStep& s, const TaylorSequence& sequence,
                                 int64_t kv_head) {
  return sequence.state + (s.layer * s.n_kv_heads + kv_head) * s.head_floats;
}

// Begins to copy columns first_column.. of features `first`.. of a state to `to`, whose rows lie
// `ld` apart, and their weights to `weights`; writes 0 from feature `end` on.
__device__ inline void BeginStatePanel(const TaylorStep& s, const float* head, int64_t first,
                                       int64_t end, int first_column, int n_columns, float* to,
                                       int ld, float* weights) {
  const int n_groups = n_columns / kColumns;
  for (int i = Tid(); i < kDepth * n_groups; i += static_cast<int>(blockDim.x)) {
    const int k = i / n_groups, j = i % n_groups * kColumns;
    if (first + k < end) {
      CopyAsync16(to + k * ld + j, head + (first + k) * s.n_columns + first_column + j);
    } else {
      *reinterpret_cast<Floats<kColumns>*>(to + k * ld + j) = {};
    }
  }
  if (Tid() < kDepth) {
    const float* from = head + s.n_features * s.n_columns + first;
    weights[Tid()] = first + Tid() < end ? from[Tid()] : 0.0f;
  }
  CommitCopies();
}

// Says whether a thread block's piece does something.
__device__ inline bool HasPiece(const TaylorReadArgs& a) {
  return a.pieces[blockIdx.x].block != kTaylorNone;
}

// A piece of a block, for one KV head. The thread block has a piece.
struct Reading {
  TaylorPiece piece;
  TaylorBlock block;
  TaylorSequence sequence;
  int64_t kv_head = 0, group = 0;

  __device__ explicit Reading(const TaylorReadArgs& a) {
    piece = a.pieces[blockIdx.x];
    block = a.blocks[piece.block];
    sequence = a.step.sequences[block.sequence];
    kv_head = blockIdx.y;
    group = a.step.n_heads / a.step.n_kv_heads;
  }
  __device__ int64_t PositionOf(int64_t r) const {
    return sequence.first_position + (block.first_row + r) / group;
  }
  // `queries` is one of the step's.
  __device__ const float* QueryOf(const TaylorStep& s, int64_t r, const float* queries) const {
    const int64_t row = block.first_row + r;
    return queries +
           ((sequence.first_query + row / group) * s.n_heads + kv_head * group + row % group) *
               s.key_dim;
  }
  __device__ const float* QueryOf(const TaylorStep& s, int64_t r) const {
    return QueryOf(s, r, s.queries);
  }
  // Returns the sums of row r; the sum of weights follows the n_columns.
  __device__ float* SlotOf(const TaylorStep& s, int64_t r) const {
    const int64_t at = block.first_slot + int64_t{piece.slot} * block.n_rows + r;
    return s.slots + (at * s.n_kv_heads + kv_head) * (s.n_columns + kColumns);
  }
};

}  // namespace lowkey::taylor

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_VIEWS_H_
