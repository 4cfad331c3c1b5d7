#ifndef LOWKEY_ENGINE_LOWRANK_ORTHONORMALIZE_H_
#define LOWKEY_ENGINE_LOWRANK_ORTHONORMALIZE_H_

#include <cstdint>
#include <vector>

namespace lowkey {

// The scratch of OrthonormalizeRows, which keeps its memory between calls.
struct OrthonormalizeScratch {
  std::vector<float> coefficients, pack;
};

// Makes the rows of y [n_rows, n_cols] (row-major, contiguous, finite, entries neither over- nor
// underflowing when squared) orthonormal in place without changing the span of any leading rows.
// A row that depends on earlier rows to within rounding becomes zero. Runs Gram-Schmidt twice, in
// panels, so that most of the work is matrix products; orthonormal to 1e-5 whatever y's condition.
void OrthonormalizeRows(int64_t n_rows, int64_t n_cols, float* y, OrthonormalizeScratch& scratch);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_ORTHONORMALIZE_H_
