#ifndef LOWKEY_ENGINE_LOWRANK_SYMMETRIC_EIGEN_H_
#define LOWKEY_ENGINE_LOWRANK_SYMMETRIC_EIGEN_H_

#include <cstdint>
#include <vector>

namespace lowkey {

// Eigenvalues of the symmetric, finite matrix a [n, n] (row-major, both triangles filled), in
// descending order. Householder tridiagonalization and implicit QL in double. Destroys a.
std::vector<double> SymmetricEigenvalues(int64_t n, std::vector<double>& a);

// The same, and a's rows become the orthonormal eigenvectors in the same order.
std::vector<double> SymmetricEigenvectors(int64_t n, std::vector<double>& a);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_SYMMETRIC_EIGEN_H_
