#ifndef LOWKEY_ENGINE_LOWRANK_ALTERNATING_H_
#define LOWKEY_ENGINE_LOWRANK_ALTERNATING_H_

#include <cstdint>

#include "engine/lowrank/basis.h"

namespace lowkey {

// Computes U [n_rows, rank], row-major with stride `rank`: orthonormal columns that nearly span the
// leading left singular vectors of m, by rank-one alternating least squares with deflation (ATP,
// Algorithm 1). Each direction begins at the longest row of the residual of m and takes `n_sweeps`
// sweeps (the paper leaves both open). 1 <= rank <= n_rows.
//  - A matrix m with non-finite entries, or whose squares overflow, gives U = 0.
//  - Columns beyond m's numerical rank are zero or orthonormal, never NaN.
// Deterministic. O(n_rows n_cols rank n_sweeps).
void AlternatingBasis(const MatrixView& m, int64_t rank, int n_sweeps, BasisWorkspace& workspace,
                      float* u);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_ALTERNATING_H_
