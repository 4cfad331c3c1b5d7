#ifndef LOWKEY_ENGINE_LOWRANK_CHOLESKY_H_
#define LOWKEY_ENGINE_LOWRANK_CHOLESKY_H_

#include <cstdint>

#include "engine/base/threads/thread_pool.h"

namespace lowkey {

// Factors a symmetric, positive definite A [n, n], of which the upper triangle is read: A = R'R.
// Replaces it by the upper triangular R with a positive diagonal; below the diagonal `a` is left
// undefined. Computes in fp32 by blocks (Golub and Van Loan, 4.2.9), O(n^3 / 3), spread over the
// pool; the result does not depend on its size. Returns false, with `a` undefined, when a pivot is
// not positive.
bool UpperCholesky(int64_t n, ThreadPool& pool, float* a);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_CHOLESKY_H_
