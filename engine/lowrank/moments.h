#ifndef LOWKEY_ENGINE_LOWRANK_MOMENTS_H_
#define LOWKEY_ENGINE_LOWRANK_MOMENTS_H_

#include <cstdint>
#include <vector>

#include "engine/base/threads/thread_pool.h"

namespace lowkey {

// Scratch that keeps its memory between calls of any Moments.
struct MomentsScratch {
  std::vector<float> rows, product;
  std::vector<std::vector<float>> packs;  // by thread
};

// Accumulates the first and second moments of vectors [dim]. Products are computed in fp32 around
// the mean of the first rows, so that a large mean costs no digits, and summed in double. The
// result does not depend on the number of threads. One thread calls.
class Moments {
 public:
  explicit Moments(int64_t dim);

  // Adds rows x [n_rows][dim], contiguous. A few hundred rows at once are fastest.
  void Add(const float* x, int64_t n_rows, ThreadPool& pool, MomentsScratch& scratch);

  int64_t dim() const { return dim_; }
  int64_t n_rows() const { return n_rows_; }
  // The mean [dim], the covariance [dim][dim] and E[x x'] [dim][dim], both triangles filled. Zero
  // before a row was added; not finite where a row was not.
  std::vector<double> Mean() const;
  std::vector<double> Covariance() const;
  std::vector<double> SecondMoment() const;

 private:
  int64_t dim_;
  int64_t n_rows_ = 0;
  std::vector<float> origin_;     // subtracted from every row
  std::vector<double> sum_;       // of x - origin
  std::vector<double> products_;  // lower triangle of the sum of (x - origin) (x - origin)'
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_MOMENTS_H_
