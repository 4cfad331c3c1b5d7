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

// U [n_rows, rank]: orthonormal columns that span (nearly) the leading left singular vectors of m,
// by subspace iteration on the Gram matrix of the smaller side, over matrix products ("block"
// decomposition), ordered by singular value. Writes u row-major with stride `rank`.
// 1 <= rank <= n_rows; n_cols >= 1.
//  - m with non-finite entries gives U = 0; so does m = 0 unless rank == n_rows.
//  - rank == n_rows: U is the identity (spans everything exactly).
//  - rank >= n_cols: U spans the columns of m exactly (orthonormalization of m itself, in m's order
//    of columns); surplus columns are zero.
//  - columns beyond m's numerical rank are zero or orthonormal, never NaN.
// Any finite scale of m is fine. Deterministic: the same m gives the same bits on one machine. Kept
// energy |U^T m|^2 is within 1% of the truncated SVD's.
void PrincipalBasis(const MatrixView& m, int64_t rank, BasisWorkspace& workspace, float* u);

// The same with the least rank whose columns keep `share` (0, 1] of |m|^2, which is found by
// doubling: u is resized to [n_rows, result]. 1 when m is zero or not finite.
int64_t EnergyBasis(const MatrixView& m, double share, BasisWorkspace& workspace,
                    std::vector<float>& u);

// Singular values of m, descending, min(n_rows, n_cols) of them, in double through the Gram
// matrix's eigenvalues (relative error grows below 1e-7 of the largest). All zero when an entry of
// m is not finite. For offline inspection: O(min^3), half a minute at 2,048.
std::vector<double> SingularValues(const MatrixView& m);

// ceil(2^mu), mu = -log2(sum_i p_i^2), p = sigma / sum sigma (ATP, Eq. 3-4): components needed to
// carry m. 0 for all-zero sigma.
int64_t SvdEntropyRank(absl::Span<const double> sigma);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_BASIS_H_
