#ifndef LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_PANELS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_PANELS_H_

// Products of two panels in shared memory, a [kDepth, rows] and b [kDepth, columns], by the threads
// of a block. A sum is a chain over the kDepth terms of a panel, added to a chain over panels,
// whatever the shape of the block.

#include "engine/kernels/cuda/taylorshift/views.h"

namespace lowkey::taylor {

inline constexpr int kMaxColumns = 128;  // columns of a block

// The threads of a block, and the rows of a thread and of the block.
template <int threads, int thread_rows>
struct Blocking {
  static constexpr int kThreads = threads;
  static constexpr int kThreadRows = thread_rows;
  static constexpr int kRows = threads == 128 ? kTaylorFewRows : kTaylorManyRows;
  static constexpr int kLdA = kRows + 4;  // neighbors of a column in other banks
  // Rows of a thread where the columns are a panel's tokens.
  static constexpr int kScoreRows = kRows * (kDepth / kColumns) / threads;
};
using FewNarrow = Blocking<128, 2>;  // at most 64 columns
using FewWide = Blocking<128, 4>;
using ManyNarrow = Blocking<256, 4>;
using ManyWide = Blocking<256, 8>;

__host__ __device__ inline int ColumnsOfBlock(int64_t head_dim) {
  const int64_t n = (head_dim + kDepth - 1) / kDepth * kDepth;
  return static_cast<int>(n < kMaxColumns ? n : kMaxColumns);
}

// A block's shared memory.
template <typename B>
struct Panels {
  float* a = nullptr;        // [kDepth][B::kLdA]
  float* ones = nullptr;     // [2][kDepth]: the column of weights
  float* b = nullptr;        // [2][kDepth][ld]
  float* factors = nullptr;  // [B::kRows]: of the rows' sums, where the weights are exp(s)
  int ld = 0;                // columns of a whole block
  int first_column = 0;      // the first column of this block
  int n_columns = 0;         // the number of columns of this block, a multiple of 4

  static int64_t Bytes(int64_t head_dim) {
    return (kDepth * B::kLdA + 2 * kDepth + 2 * kDepth * ColumnsOfBlock(head_dim) + B::kRows) *
           static_cast<int64_t>(sizeof(float));
  }
  // Returns a panel [kDepth][kDepth] of keys, where only one panel of b is used.
  __device__ float* keys() const { return b + kDepth * ld; }
};

template <typename B>
__device__ Panels<B> MakePanels(float* shared, int64_t head_dim) {
  Panels<B> p;
  p.a = shared;
  p.ones = p.a + kDepth * B::kLdA;
  p.b = p.ones + 2 * kDepth;
  p.ld = ColumnsOfBlock(head_dim);
  p.factors = p.b + 2 * kDepth * p.ld;
  p.first_column = static_cast<int>(blockIdx.z) * kMaxColumns;
  const int left = static_cast<int>(head_dim + kColumns - 1) / kColumns * kColumns - p.first_column;
  p.n_columns = left < p.ld ? left : p.ld;
  return p;
}

// The part of a block's sums that a thread computes.
template <int rows>
struct Sums {
  float x[rows][kColumns] = {};

  // `at` is aligned to 16 bytes.
  __device__ void LoadRow(int row, const float* at) {
    const auto y = *reinterpret_cast<const Floats<kColumns>*>(at);
    for (int j = 0; j < kColumns; ++j) x[row][j] = y.x[j];
  }
  __device__ void StoreRow(int row, float* at) const {
    Floats<kColumns> y;
    for (int j = 0; j < kColumns; ++j) y.x[j] = x[row][j];
    *reinterpret_cast<Floats<kColumns>*>(at) = y;
  }
};

// Adds a^T b of panels to sums; `a` and `b` point at the thread's rows and columns.
template <int rows>
__device__ inline void AddPanels(const float* a, int ld_a, const float* b, int ld_b,
                                 Sums<rows>& sums) {
  constexpr int kVector = rows < 4 ? rows : 4;
  Sums<rows> part;
  for (int k = 0; k < kDepth; ++k) {
    const auto y = *reinterpret_cast<const Floats<kColumns>*>(b + k * ld_b);
    for (int i = 0; i < rows; i += kVector) {
      const auto x = *reinterpret_cast<const Floats<kVector>*>(a + k * ld_a + i);
      for (int v = 0; v < kVector; ++v) {
        for (int j = 0; j < kColumns; ++j) {
          part.x[i + v][j] = fmaf(x.x[v], y.x[j], part.x[i + v][j]);
        }
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < kColumns; ++j) sums.x[i][j] += part.x[i][j];
  }
}

// Adds one row of a^T times the column of weights.
__device__ inline void AddColumn(const float* a, int ld_a, const float* column, float& sum) {
  float part = 0;
  for (int k = 0; k < kDepth; ++k) part = fmaf(a[k * ld_a], column[k], part);
  sum += part;
}

// The sums of a thread over a block's panels: rows times columns, and the weights of one row.
template <typename B>
struct BlockSums {
  int row = 0, column = 0;  // the thread's first row and column
  bool is_used = false;
  bool has_weights = false;
  Sums<B::kThreadRows> sums;
  float weights = 0;

  __device__ BlockSums(const Panels<B>& p, int n_rows) {
    const int n_groups = p.n_columns / kColumns;
    row = Tid() / n_groups * B::kThreadRows;
    column = Tid() % n_groups * kColumns;
    is_used = row < n_rows;
    has_weights = p.first_column == 0 && Tid() < n_rows;
  }
  // Multiplies each row's sums by its factor.
  __device__ void Scale(const Panels<B>& p) {
    for (int i = 0; i < B::kThreadRows && is_used; ++i) {
      for (int j = 0; j < kColumns; ++j) sums.x[i][j] *= p.factors[row + i];
    }
    if (has_weights) weights *= p.factors[Tid()];
  }
  __device__ void Add(const Panels<B>& p, const float* b, const float* column_of_weights) {
    if (is_used) AddPanels(p.a + row, B::kLdA, b + column, p.ld, sums);
    if (has_weights) AddColumn(p.a + Tid(), B::kLdA, column_of_weights, weights);
  }
};

}  // namespace lowkey::taylor

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_PANELS_H_
