#ifndef LOWKEY_ENGINE_LOWRANK_PRINCIPAL_BASIS_H_
#define LOWKEY_ENGINE_LOWRANK_PRINCIPAL_BASIS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/lowrank/moments.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// The KV heads whose keys and values make a vector x = [k_1 .. k_n v_1 .. v_n].
struct HeadGroup {
  int64_t n_heads = 0;
  int64_t key_dim = 0;    // of keys and queries
  int64_t value_dim = 0;  // of values

  int64_t dim() const { return n_heads * (key_dim + value_dim); }
};

// Returns the most heads, a divisor of n_kv_heads, whose vectors have at most 512 numbers, and at
// least 1: the bases of a layer then have 2 dim * (all numbers of a token) elements, which is a few
// hundredths of the weights.
int64_t HeadsPerGroup(int64_t n_kv_heads, int64_t key_dim, int64_t value_dim);

// VectorStatistics holds the mean and the covariance of vectors [dim].
struct VectorStatistics {
  int64_t n_rows = 0;
  std::vector<double> mean, covariance;  // [dim], [dim][dim]
};

// Finds the code of the group's vectors from the moments of x and, by KV head, of the queries that
// read the head: principal components of B (x - mean), where B weighs a key's error by the variance
// of the score that it causes, S^(1/2) with S = E[q q'] / key_dim, and a value's error relatively
// to the variance of the head's values. Eigenvalues of S below 1e-6 of the largest count as that.
// A group without keys (key_dim 0) has no queries, one without values has value_dim 0.
// FAILED_PRECONDITION when there are fewer than 2 rows, or moments are not finite.
absl::StatusOr<PrincipalCode> FindPrincipalCode(const HeadGroup& group, const Moments& x,
                                                absl::Span<const Moments> queries);
absl::StatusOr<PrincipalCode> FindPrincipalCode(const HeadGroup& group, const VectorStatistics& x,
                                                absl::Span<const Moments> queries);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_PRINCIPAL_BASIS_H_
