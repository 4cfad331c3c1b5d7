#ifndef LOWKEY_ENGINE_LOWRANK_BASIS_H_
#define LOWKEY_ENGINE_LOWRANK_BASIS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/lowrank/subspace.h"

namespace lowkey {

// A row-major matrix [n_rows, n_cols] of floats that somebody else owns; row i starts at data + i *
// stride.
struct MatrixView {
  const float* data = nullptr;
  int64_t n_rows = 0;
  int64_t n_cols = 0;
  int64_t stride = 0;
};

// Scratch that PrincipalBasis reuses between calls; one per thread. A call needs about
// min(n_rows, n_cols)^2 + (n_rows + n_cols) * (rank + 8) + n_rows * n_cols floats.
struct BasisWorkspace {
  std::vector<float> scaled, gram, left;
  SubspaceScratch subspace;
};

// Computes U [n_rows, rank]: orthonormal columns that span (nearly) the leading left singular
// vectors of m, ordered by singular value, by subspace iteration on the Gram matrix of the smaller
// side, over matrix products ("block" decomposition). Writes u row-major with stride `rank`. 1 <=
// rank <= n_rows; n_cols >= 1.
//  - A matrix m with non-finite entries gives U = 0; so does m = 0 unless rank == n_rows.
//  - rank == n_rows: U is the identity (spans everything exactly).
//  - rank >= n_cols: U spans the columns of m exactly (orthonormalization of m itself, in m's order
//    of columns); surplus columns are zero.
//  - Columns beyond m's numerical rank are zero or orthonormal, never NaN.
// Any finite scale of m is fine. Deterministic: the same m gives the same bits on one machine. The
// kept energy |U^T m|^2 is within 1% of the truncated SVD's.
void PrincipalBasis(const MatrixView& m, int64_t rank, BasisWorkspace& workspace, float* u);

// Computes the same with the least rank whose columns keep `share` (0, 1] of |m|^2, found by
// doubling, and returns the rank: 1 when m is zero or not finite. u becomes [n_rows, rank].
int64_t EnergyBasis(const MatrixView& m, double share, BasisWorkspace& workspace,
                    std::vector<float>& u);

// Returns the min(n_rows, n_cols) singular values of m, descending, in double through the Gram
// matrix's eigenvalues (relative error grows below 1e-7 of the largest). All are zero when an entry
// of m is not finite. For offline inspection: O(min^3), half a minute at 2,048.
std::vector<double> SingularValues(const MatrixView& m);

// Returns ceil(2^mu), mu = -log2(sum_i p_i^2), p = sigma / sum sigma (ATP, Eq. 3-4): the number of
// components that carry m. 0 where all of sigma is zero.
int64_t SvdEntropyRank(absl::Span<const double> sigma);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_BASIS_H_
