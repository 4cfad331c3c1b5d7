#ifndef LOWKEY_ENGINE_LOWRANK_SYMMETRIC_EIGEN_H_
#define LOWKEY_ENGINE_LOWRANK_SYMMETRIC_EIGEN_H_

#include <cstdint>
#include <vector>

namespace lowkey {

// Returns the eigenvalues of the symmetric, finite matrix a [n, n] (row-major, both triangles
// filled), in descending order, by Householder tridiagonalization and implicit QL. Destroys a.
std::vector<double> SymmetricEigenvalues(int64_t n, std::vector<double>& a);

// Returns the same, and makes a's rows the orthonormal eigenvectors in the same order.
std::vector<double> SymmetricEigenvectors(int64_t n, std::vector<double>& a);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_SYMMETRIC_EIGEN_H_
