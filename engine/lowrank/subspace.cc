#include "engine/lowrank/subspace.h"

#include <algorithm>

#include "engine/base/mix_bits.h"
#include "engine/lowrank/matmul.h"
#include "engine/lowrank/symmetric_eigen.h"

namespace lowkey {
namespace {

// More directions than wanted, so that those at the cut converge too.
constexpr int64_t kOversampling = 8;
constexpr int kFilterRounds = 2;
constexpr int kMaxDegree = 6;
// A filter that enlarges the first direction this much more than the last keeps rounding below a
// percent of the last.
constexpr double kMaxSpread = 2e5;

// Fills counter-based numbers in [-1, 1): the start depends on the size alone.
void FillStart(int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t z = MixBits((static_cast<uint64_t>(i) + 1) * kGoldenStep);
    out[i] = static_cast<float>(static_cast<int32_t>(z >> 32)) * 0x1p-31f;
  }
}

// One call's state: scratch.basis holds n_rows orthonormal rows of length size, scratch.image is
// for their products with gram.
struct Iteration {
  int64_t size = 0;
  const float* gram = nullptr;
  int64_t n_rows = 0;
  SubspaceScratch& scratch;
};

void Multiply(const Iteration& it, const std::vector<float>& from, const MatmulOptions& options,
              std::vector<float>& to) {
  Matmul({it.n_rows, it.size, it.size}, {from.data(), it.size, 1}, {it.gram, it.size, 1}, options,
         {to.data(), it.size}, it.scratch.orthonormalize.pack);
}

// Makes the rows of image orthonormal, drops dependent rows, and makes the rest the basis.
void AdoptImage(Iteration& it) {
  SubspaceScratch& s = it.scratch;
  OrthonormalizeRows(it.n_rows, it.size, s.image.data(), s.orthonormalize);
  int64_t n_kept = 0;
  for (int64_t i = 0; i < it.n_rows; ++i) {
    const float* row = s.image.data() + i * it.size;
    if (std::all_of(row, row + it.size, [](float x) { return x == 0.0f; })) continue;
    if (n_kept != i) std::copy_n(row, it.size, s.image.data() + n_kept * it.size);
    ++n_kept;
  }
  it.n_rows = n_kept;
  s.basis.swap(s.image);
}

// Computes image = basis * gram and eigen = image * basis^T, gram in terms of the basis.
void Project(Iteration& it) {
  SubspaceScratch& s = it.scratch;
  const int64_t n = it.n_rows;
  Multiply(it, s.basis, {}, s.image);
  s.small.resize(n * n);
  Matmul({n, n, it.size}, {s.image.data(), it.size, 1}, {s.basis.data(), 1, it.size},
         {.lower_only = true}, {s.small.data(), n}, s.orthonormalize.pack);
  MirrorLower(n, s.small.data());
  s.eigen.assign(s.small.begin(), s.small.end());
}

// Returns the highest degree whose Chebyshev polynomial on [0, smallest] stays below kMaxSpread up
// to `largest`.
int FilterDegree(double smallest, double largest) {
  if (smallest <= 0.0 || largest > smallest * kMaxSpread) return 1;
  const double x = 2.0 * largest / smallest - 1.0;
  double before = 1.0, value = x;
  for (int degree = 1; degree < kMaxDegree; ++degree) {
    const double next = 2.0 * x * value - before;
    if (next > kMaxSpread) return degree;
    before = value;
    value = next;
  }
  return kMaxDegree;
}

// Computes image = T_degree(2 gram / cut - 1) applied to basis, from image = basis * gram.
// Eigenvalues below cut stay within [-1, 1]; those above grow like cosh, much faster than powers
// near the cut.
void ApplyChebyshev(int degree, double cut, Iteration& it) {
  SubspaceScratch& s = it.scratch;
  const float slope = static_cast<float>(2.0 / cut);
  const int64_t n = it.n_rows * it.size;
  for (int64_t i = 0; i < n; ++i) s.image[i] = slope * s.image[i] - s.basis[i];
  for (int k = 1; k < degree; ++k) {
    for (int64_t i = 0; i < n; ++i) s.basis[i] = -s.basis[i] - 2.0f * s.image[i];
    Multiply(it, s.image, {.accumulate = true, .alpha = 2.0f * slope}, s.basis);
    s.basis.swap(s.image);
  }
}

// Filters the basis once. The basis's own view of the spectrum gives the cut: its smallest Ritz
// value is at most the eigenvalue that it stands for.
void Filter(Iteration& it) {
  Project(it);
  const std::vector<double> ritz = SymmetricEigenvalues(it.n_rows, it.scratch.eigen);
  const int degree = FilterDegree(ritz.back(), ritz.front());
  if (degree > 1) ApplyChebyshev(degree, ritz.back(), it);
  AdoptImage(it);
}

}  // namespace

int64_t LeadingEigenvectors(int64_t size, const float* gram, int64_t n_wanted,
                            SubspaceScratch& scratch) {
  Iteration it{size, gram, std::min(n_wanted + kOversampling, size), scratch};
  scratch.basis.resize(it.n_rows * size);
  scratch.image.resize(it.n_rows * size);
  FillStart(it.n_rows * size, scratch.basis.data());
  Multiply(it, scratch.basis, {}, scratch.image);
  AdoptImage(it);
  for (int round = 0; round < kFilterRounds && it.n_rows > 0; ++round) Filter(it);
  if (it.n_rows == 0) return 0;

  Project(it);
  SymmetricEigenvectors(it.n_rows, scratch.eigen);
  scratch.small.assign(scratch.eigen.begin(), scratch.eigen.end());
  const int64_t n_kept = std::min(n_wanted, it.n_rows);
  Matmul({n_kept, size, it.n_rows}, {scratch.small.data(), it.n_rows, 1},
         {scratch.basis.data(), size, 1}, {}, {scratch.image.data(), size},
         scratch.orthonormalize.pack);
  scratch.basis.swap(scratch.image);
  return n_kept;
}

}  // namespace lowkey
