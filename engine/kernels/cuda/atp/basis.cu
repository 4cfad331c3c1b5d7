// Computes the principal bases of closed blocks, by subspace iteration as in lowrank/subspace.cc.
// The rounds are the same for all blocks, so that the host need not know how a round went.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

// Rounds of the Chebyshev filter of lowrank/subspace.cc; the spectrum bounds the degree.
constexpr int kRounds = 3;
constexpr int kMostDegree = 6;
constexpr float kMostSpread = 2e5f;
constexpr int kMostTrials = 20;  // the most cuts to try, each half of the last
constexpr int kThreads = 256;

// Bounds of a row's residual after its projections are taken out, relative to the row
// (lowrank/orthonormalize.h): below the first bound the residual is rounding.
constexpr float kDependentFirst = 2e-6f;
constexpr float kDependentSecond = 0.1f;

// A product c [rows, columns] of a task: the sum over k < depth of a (row, k) * b (k, column). An
// element of either factor is at row * r + column * c.
struct Factor {
  const float* data = nullptr;
  int64_t r = 0, c = 0;
};
struct Product {
  int rows = 0, columns = 0, depth = 0;
  Factor a, b;
  float* to = nullptr;  // [rows, columns]
  // In a step of the filter, to = 2 slope a b - 2 a - to.
  float slope = 0;
};

enum class Stage { kGram, kIterate, kView, kFilter, kMapToLeft, kProject };

// Returns a task's filter, which lies beside its columns: the degree, and 2 / cut (the polynomials
// are of 2 x / cut - 1).
__device__ __forceinline__ float* FilterOf(const AtpCompressArgs& a, int64_t task) {
  return a.columns + task * a.columns_stride + 2 * a.max_cols;
}

// Returns the product of a stage, empty where the task has no part in the stage.
template <Stage kStage>
__device__ __forceinline__ Product ProductOf(const AtpCompressArgs& a, const AtpCompressTask& t,
                                             int64_t task) {
  const float* m = a.m + task * a.m_stride;
  float* gram = a.gram + task * a.gram_stride;
  float* basis = a.basis + task * a.basis_stride;
  float* image = a.image + task * a.basis_stride;
  if constexpr (kStage == Stage::kGram) {
    if (t.n_found == t.size) return {};
    if (t.n <= t.n_cols) return {t.n, t.n, t.n_cols, {m, t.n_cols, 1}, {m, 1, t.n_cols}, gram};
    return {t.n_cols, t.n_cols, t.n, {m, 1, t.n_cols}, {m, t.n_cols, 1}, gram};
  } else if constexpr (kStage == Stage::kIterate) {
    if (t.n_found == t.size) return {};
    return {t.n_found, t.size, t.size, {basis, t.size, 1}, {gram, t.size, 1}, image};
  } else if constexpr (kStage == Stage::kView) {
    if (t.n_found == t.size) return {};
    return {t.n_found,          t.n_found,          t.size,
            {image, t.size, 1}, {basis, 1, t.size}, a.projected + task * a.projected_stride};
  } else if constexpr (kStage == Stage::kFilter) {
    const float* filter = FilterOf(a, task);
    if (t.n_found == t.size || filter[0] <= static_cast<float>(a.step)) return {};
    const bool odd = a.step % 2 == 1;
    return {
        t.n_found,           t.size,   t.size, {odd ? image : basis, t.size, 1}, {gram, t.size, 1},
        odd ? basis : image, filter[1]};
  } else if constexpr (kStage == Stage::kMapToLeft) {
    if (t.n <= t.n_cols) return {};
    return {t.n_found, t.n, t.n_cols, {basis, t.n_cols, 1}, {m, 1, t.n_cols}, image};
  } else {
    const float* left = t.n <= t.n_cols ? basis : image;
    return {t.n_found,      t.n_cols,         t.n,
            {left, t.n, 1}, {m, t.n_cols, 1}, a.projected + task * a.projected_stride};
  }
}

constexpr int kTile = 64, kDepth = 16, kPart = 4;

__device__ __forceinline__ void LoadFactor(float (*to)[kTile + 1], const Factor& from, int64_t at,
                                           int64_t end, int64_t first_k, int64_t depth) {
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    // Neighboring threads read neighboring numbers.
    const int row = from.r == 1 ? i % kTile : i / kDepth, k = from.r == 1 ? i / kTile : i % kDepth;
    float x = 0;
    if (at + row < end && first_k + k < depth) {
      x = from.data[(at + row) * from.r + (first_k + k) * from.c];
    }
    to[k][row] = x;
  }
}

// One block of threads computes a tile of 64 x 64; every element is one chain of multiply-adds.
template <Stage kStage>
__global__ __launch_bounds__(kThreads) void ProductKernel(AtpCompressArgs a) {
  __shared__ float left[kDepth][kTile + 1], right[kDepth][kTile + 1];
  const Product p = ProductOf<kStage>(a, a.tasks[blockIdx.z], blockIdx.z);
  const int64_t row = int64_t{blockIdx.y} * kTile, column = int64_t{blockIdx.x} * kTile;
  if (row >= p.rows || column >= p.columns) return;
  const int y = threadIdx.x / 16, x = threadIdx.x % 16;
  float sums[kPart][kPart] = {};
  for (int64_t k = 0; k < p.depth; k += kDepth) {
    LoadFactor(left, p.a, row, p.rows, k, p.depth);
    LoadFactor(right, {p.b.data, p.b.c, p.b.r}, column, p.columns, k, p.depth);
    __syncthreads();
    for (int kk = 0; kk < kDepth; ++kk) {
      float from[kPart];
      for (int j = 0; j < kPart; ++j) from[j] = right[kk][x + 16 * j];
      for (int i = 0; i < kPart; ++i) {
        const float by = left[kk][y + 16 * i];
        for (int j = 0; j < kPart; ++j) sums[i][j] = fmaf(by, from[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kPart; ++i) {
    for (int j = 0; j < kPart; ++j) {
      const int64_t r = row + y + 16 * i, c = column + x + 16 * j;
      if (r >= p.rows || c >= p.columns) continue;
      float& to = p.to[r * p.columns + c];
      if (kStage == Stage::kFilter) {
        const float before = fmaf(2.0f, p.a.data[r * p.a.r + c], to);
        to = fmaf(2.0f * p.slope, sums[i][j], -before);
      } else {
        to = sums[i][j];
      }
    }
  }
}

// Returns counter-based numbers in [-1, 1): the start depends on the size alone.
__device__ __forceinline__ float StartNumber(int64_t i) {
  uint64_t z = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(static_cast<int32_t>(z >> 32)) * 0x1p-31f;
}

// Writes the start: the identity where the whole space is sought.
__global__ void StartKernel(AtpCompressArgs a) {
  const AtpCompressTask t = a.tasks[blockIdx.y];
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= int64_t{t.n_found} * t.size) return;
  const bool whole = t.n_found == t.size;
  a.basis[blockIdx.y * a.basis_stride + i] =
      whole ? (i / t.size == i % t.size ? 1.0f : 0.0f) : StartNumber(i);
}

// Returns the sum of x[i] y[i], the same in all lanes.
__device__ __forceinline__ float WarpDot(const float* x, const float* y, int n) {
  float sum = 0;
  for (int i = threadIdx.x % kWarp; i < n; i += kWarp) sum = fmaf(x[i], y[i], sum);
  return WarpSum(sum);
}

// Takes the projections onto rows before `row` out of `kept`, which is that row. Has barriers.
__device__ __forceinline__ void ProjectOut(const float* rows, int row, int n, float* kept,
                                           float* coefficients) {
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  for (int j = threadIdx.x / kWarp; j < row; j += n_warps) {
    const float dot = WarpDot(rows + int64_t{j} * n, kept, n);
    if (threadIdx.x % kWarp == 0) coefficients[j] = dot;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float x = kept[i];
    for (int j = 0; j < row; ++j) x = fmaf(-coefficients[j], rows[int64_t{j} * n + i], x);
    kept[i] = x;
  }
  __syncthreads();
}

// Returns the highest degree whose Chebyshev polynomial on [0, cut] stays below kMostSpread up to
// `largest`; 1, plain powers, where the spectrum is steep.
__device__ __forceinline__ int FilterDegree(float cut, float largest) {
  if (!(cut > 0.0f) || !(largest <= cut * kMostSpread)) return 1;
  const float x = 2.0f * (largest / cut) - 1.0f;
  float before = 1, value = x;
  for (int degree = 1; degree < kMostDegree; ++degree) {
    const float next = fmaf(2.0f * x, value, -before);
    if (!(next <= kMostSpread)) return degree;
    before = value;
    value = next;
  }
  return kMostDegree;
}

// Normalizes `kept`, or zeroes it where its length is at most `dependent`.
__device__ __forceinline__ bool Normalize(float* kept, int n, float dependent) {
  const float length = sqrtf(WarpDot(kept, kept, n));  // every warp finds the same
  const bool keep = length > dependent && 1.0f / length < INFINITY && length < INFINITY;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = keep ? kept[i] / length : 0.0f;
  __syncthreads();
  return keep;
}

// Returns whether every eigenvalue of the symmetric s [n, n] is above `shift`: s - shift has
// positive pivots. Reads the upper triangle; the lower one and `diagonal` [n], which is shared, are
// scratch. One block of threads calls it, and all get the answer.
__device__ __forceinline__ bool IsAbove(float* s, int n, float shift, float* diagonal) {
  __syncthreads();
  for (int i = threadIdx.x; i < n * n; i += blockDim.x) {
    const int row = i / n, column = i % n;
    if (row > column) s[i] = s[column * n + row];
    if (row == column) diagonal[row] = s[i] - shift;
  }
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    if (!(diagonal[k] > 0.0f)) return false;
    const float by = 1.0f / diagonal[k];
    const int rest = n - k - 1;
    for (int i = threadIdx.x; i < rest * rest; i += blockDim.x) {
      const int row = k + 1 + i / rest, column = k + 1 + i % rest;
      if (column > row) continue;
      float& to = row == column ? diagonal[row] : s[row * n + column];
      to = fmaf(-s[row * n + k] * by, s[column * n + k], to);
    }
    __syncthreads();
  }
  return true;
}

// Chooses the filter from basis, image = basis gram and gram in terms of the basis (Stage::kView),
// and takes its first step, image = slope image - basis. The cut is at most the smallest Ritz
// value, and so at most the eigenvalue that it stands for: no wanted eigenvalue is below it. One
// block of threads per task.
__global__ void BeginFilterKernel(AtpCompressArgs a) {
  LK_DYNAMIC_SHARED(float, memory);  // [2, n_found]: |q gram| of each row q; scratch
  const AtpCompressTask t = a.tasks[blockIdx.x];
  if (t.n_found == t.size) return;
  const float* basis = a.basis + blockIdx.x * a.basis_stride;
  float* image = a.image + blockIdx.x * a.basis_stride;
  float* view = a.projected + blockIdx.x * a.projected_stride;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp, n = t.n_found;
  for (int row = threadIdx.x / kWarp; row < n; row += n_warps) {
    const int64_t at = int64_t{row} * t.size;
    const float length = sqrtf(WarpDot(image + at, image + at, t.size));
    if (threadIdx.x % kWarp == 0) memory[row] = length;
  }
  __syncthreads();
  float cut = view[0], largest = memory[0];
  for (int row = 1; row < n; ++row) {
    cut = fminf(cut, view[row * n + row]);  // no smaller than the smallest Ritz value
    largest = fmaxf(largest, memory[row]);
  }
  int n_trials = 0;
  while (n_trials < kMostTrials && !IsAbove(view, n, cut, memory + n)) cut /= 2, ++n_trials;
  const int degree = n_trials < kMostTrials ? FilterDegree(cut, largest) : 1;
  const float slope = degree > 1 ? 2.0f / cut : 1.0f;
  if (threadIdx.x == 0) {
    float* filter = FilterOf(a, blockIdx.x);
    filter[0] = static_cast<float>(degree);
    filter[1] = slope;
  }
  if (degree == 1) return;
  for (int64_t i = threadIdx.x; i < int64_t{n} * t.size; i += blockDim.x) {
    image[i] = fmaf(slope, image[i], -basis[i]);
  }
}

// Orthonormalizes n_rows rows of n numbers of `from` into `rows`, which may be the same, by
// Gram-Schmidt twice; a row that depends on earlier rows becomes zero (lowrank/orthonormalize.h).
// One block of threads calls it; no number depends on how many threads.
__device__ __forceinline__ void Orthonormalize(const float* from, float* rows, int n_rows, int n,
                                               float* memory) {
  float *kept = memory, *coefficients = memory + n;
  for (int row = 0; row < n_rows; ++row) {
    float* at = rows + int64_t{row} * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = from[int64_t{row} * n + i];
    __syncthreads();
    const float length = sqrtf(WarpDot(kept, kept, n));
    __syncthreads();
    ProjectOut(rows, row, n, kept, coefficients);
    if (Normalize(kept, n, kDependentFirst * length)) {
      ProjectOut(rows, row, n, kept, coefficients);
      Normalize(kept, n, kDependentSecond);
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) at[i] = kept[i];
    __syncthreads();
  }
}

enum class BasisRows { kStart, kPower, kFiltered, kLeft };

// Orthonormalizes into `basis` the rows that the step before has left; kLeft: image, in place.
template <BasisRows kRows>
__global__ void OrthonormalizeKernel(AtpCompressArgs a) {
  LK_DYNAMIC_SHARED(float, memory);
  const AtpCompressTask t = a.tasks[blockIdx.x];
  if (kRows == BasisRows::kLeft ? t.n <= t.n_cols : t.n_found == t.size) return;
  float* basis = a.basis + blockIdx.x * a.basis_stride;
  float* image = a.image + blockIdx.x * a.basis_stride;
  const float* from = kRows == BasisRows::kStart ? basis : image;
  if (kRows == BasisRows::kFiltered) {
    // The steps of a filter write to basis and image by turns.
    from = static_cast<int>(FilterOf(a, blockIdx.x)[0]) % 2 == 0 ? basis : image;
  }
  const bool is_left = kRows == BasisRows::kLeft;
  Orthonormalize(from, is_left ? image : basis, t.n_found, is_left ? t.n : t.size, memory);
}

int64_t Tiles(int64_t n, int64_t width) { return (n + width - 1) / width; }

template <Stage kStage>
void Multiply(Device& device, const AtpCompressArgs& a, int64_t rows, int64_t columns) {
  Launch(device, ProductKernel<kStage>,
         {.blocks_x = Tiles(columns, kTile),
          .blocks_y = Tiles(rows, kTile),
          .blocks_z = a.n_tasks,
          .threads = kThreads},
         a);
}

template <BasisRows kRows>
void QueueOrthonormalize(Device& device, const AtpCompressArgs& a) {
  const int64_t n = kRows == BasisRows::kLeft ? a.max_left : a.max_size;
  Launch(device, OrthonormalizeKernel<kRows>,
         {.blocks_x = a.n_tasks,
          .threads = n <= 128 ? 128 : 512,
          .shared_bytes = (n + a.max_found) * static_cast<int64_t>(sizeof(float))},
         a);
}

void QueueFilter(Device& device, AtpCompressArgs a) {
  Multiply<Stage::kIterate>(device, a, a.max_found, a.max_size);
  Multiply<Stage::kView>(device, a, a.max_found, a.max_found);
  Launch(device, BeginFilterKernel,
         {.blocks_x = a.n_tasks,
          .threads = a.max_size <= 128 ? 128 : 512,
          .shared_bytes = 2 * a.max_found * static_cast<int64_t>(sizeof(float))},
         a);
  for (a.step = 1; a.step < kMostDegree; ++a.step) {
    Multiply<Stage::kFilter>(device, a, a.max_found, a.max_size);
  }
  QueueOrthonormalize<BasisRows::kFiltered>(device, a);
}

}  // namespace

void AtpFindBasis(Device& device, const AtpCompressArgs& a) {
  Multiply<Stage::kGram>(device, a, a.max_size, a.max_size);
  Launch(device, StartKernel,
         {.blocks_x = Tiles(a.max_found * a.max_size, kThreads),
          .blocks_y = a.n_tasks,
          .threads = kThreads},
         a);
  QueueOrthonormalize<BasisRows::kStart>(device, a);
  Multiply<Stage::kIterate>(device, a, a.max_found, a.max_size);
  QueueOrthonormalize<BasisRows::kPower>(device, a);
  for (int round = 0; round < kRounds; ++round) QueueFilter(device, a);
  if (a.max_left > 0) {
    Multiply<Stage::kMapToLeft>(device, a, a.max_found, a.max_left);
    QueueOrthonormalize<BasisRows::kLeft>(device, a);
  }
  Multiply<Stage::kProject>(device, a, a.max_found, a.max_cols);
}

}  // namespace lowkey
