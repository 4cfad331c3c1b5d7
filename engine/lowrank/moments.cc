#include "engine/lowrank/moments.h"

#include <algorithm>

#include "engine/lowrank/matmul.h"

namespace lowkey {
namespace {

// Rows of the product that one task computes.
constexpr int64_t kTaskRows = 96;

}  // namespace

Moments::Moments(int64_t dim) : dim_(dim), origin_(dim), sum_(dim), products_(dim * dim) {}

void Moments::Add(const float* x, int64_t n_rows, ThreadPool& pool, MomentsScratch& scratch) {
  if (n_rows == 0) return;
  if (n_rows_ == 0) {
    std::vector<double> mean(dim_);
    for (int64_t i = 0; i < n_rows; ++i) {
      for (int64_t j = 0; j < dim_; ++j) mean[j] += x[i * dim_ + j];
    }
    for (int64_t j = 0; j < dim_; ++j) {
      origin_[j] = static_cast<float>(mean[j] / static_cast<double>(n_rows));
    }
  }
  n_rows_ += n_rows;
  scratch.rows.resize(n_rows * dim_);
  scratch.product.resize(dim_ * dim_);
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < dim_; ++j) {
      const float value = x[i * dim_ + j] - origin_[j];
      scratch.rows[i * dim_ + j] = value;
      sum_[j] += value;
    }
  }
  scratch.packs.resize(std::max<size_t>(scratch.packs.size(), pool.n_threads()));
  const int64_t n_tasks = (dim_ + kTaskRows - 1) / kTaskRows;
  pool.ParallelFor(n_tasks, [&](int64_t task, int thread) {
    const int64_t first = task * kTaskRows, end = std::min(dim_, first + kTaskRows);
    Matmul({end - first, end, n_rows}, {scratch.rows.data() + first, 1, dim_},
           {scratch.rows.data(), dim_, 1}, {}, {scratch.product.data() + first * dim_, dim_},
           scratch.packs[thread]);
    for (int64_t i = first; i < end; ++i) {
      for (int64_t j = 0; j <= i; ++j) products_[i * dim_ + j] += scratch.product[i * dim_ + j];
    }
  });
}

std::vector<double> Moments::Mean() const {
  std::vector<double> mean(dim_);
  for (int64_t j = 0; j < dim_ && n_rows_ > 0; ++j) {
    mean[j] = origin_[j] + sum_[j] / static_cast<double>(n_rows_);
  }
  return mean;
}

std::vector<double> Moments::Covariance() const {
  std::vector<double> out(dim_ * dim_);
  if (n_rows_ == 0) return out;
  const auto n = static_cast<double>(n_rows_);
  for (int64_t i = 0; i < dim_; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      out[i * dim_ + j] = out[j * dim_ + i] =
          products_[i * dim_ + j] / n - sum_[i] / n * (sum_[j] / n);
    }
  }
  return out;
}

std::vector<double> Moments::SecondMoment() const {
  const std::vector<double> mean = Mean();
  std::vector<double> out = Covariance();
  for (int64_t i = 0; i < dim_; ++i) {
    for (int64_t j = 0; j < dim_; ++j) out[i * dim_ + j] += mean[i] * mean[j];
  }
  return out;
}

}  // namespace lowkey
