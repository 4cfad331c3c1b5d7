#ifndef LOWKEY_ENGINE_LOWRANK_SUBSPACE_H_
#define LOWKEY_ENGINE_LOWRANK_SUBSPACE_H_

#include <cstdint>
#include <vector>

#include "engine/lowrank/orthonormalize.h"

namespace lowkey {

// The scratch of LeadingEigenvectors, which keeps its memory between calls.
struct SubspaceScratch {
  std::vector<float> basis, image, small;
  std::vector<double> eigen;
  OrthonormalizeScratch orthonormalize;
};

// Approximates the eigenvectors of the largest eigenvalues of the symmetric, positive semidefinite
// gram [size, size], in descending order, as orthonormal rows of scratch.basis [result, size].
// Returns n_wanted, or gram's numerical rank where that is less. 1 <= n_wanted <= size. The trace
// of gram over the eigenvectors is within 1% of the largest possible.
//
// The method is subspace iteration from a fixed start (Halko, Martinsson, Tropp 2011, Algorithm
// 4.4), with Chebyshev polynomials instead of powers where the spectrum is so flat that powers
// converge slowly (Zhou, Saad 2007), and a Rayleigh-Ritz projection at the end.
int64_t LeadingEigenvectors(int64_t size, const float* gram, int64_t n_wanted,
                            SubspaceScratch& scratch);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_SUBSPACE_H_
