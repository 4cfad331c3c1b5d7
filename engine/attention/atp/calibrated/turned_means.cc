#include "engine/attention/atp/calibrated/turned_means.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/pages/paged_kv.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

namespace {

constexpr double kMiddle = 0.5 * (kPageTokens - 1);

}  // namespace

TurnedMeans::TurnedMeans(const std::vector<double>& inverse_frequencies)
    : frequencies_(inverse_frequencies) {
  const auto half = static_cast<int64_t>(frequencies_.size());
  for (int64_t i = 0; i < half; ++i) {
    if (std::fabs(frequencies_[i]) * kPageTokens > 1) n_fast_ = i + 1;
  }
  turns_.resize(2 * half * kPageTokens);
  for (int64_t i = 0; i < half; ++i) {
    for (int64_t t = 0; t < kPageTokens; ++t) {
      const bool is_fast = i < n_fast_;
      const double x = (static_cast<double>(t) - (is_fast ? 0 : kMiddle)) * frequencies_[i];
      const double cos = is_fast ? std::cos(x) : 1 - x * x / 2;
      const double sin = is_fast ? std::sin(x) : x - x * x * x / 6;
      turns_[i * kPageTokens + t] = static_cast<float>(cos);
      turns_[(half + i) * kPageTokens + t] = static_cast<float>(sin);
    }
  }
  const auto cosines = turns_.begin(), sines = cosines + half * kPageTokens;
  terms_.assign(cosines, cosines + n_fast_ * kPageTokens);
  terms_.insert(terms_.end(), sines, sines + n_fast_ * kPageTokens);
  for (int power = 0; power < kPowers; ++power) {
    for (int64_t t = 0; t < kPageTokens; ++t) {
      terms_.push_back(static_cast<float>(std::pow(static_cast<double>(t) - kMiddle, power)));
    }
  }
  constexpr double kFactors[kPowers - 1] = {1, -1.0 / 2, -1.0 / 6};
  for (int i = 0; i < kPowers - 1; ++i) {
    for (const double frequency : frequencies_) {
      powers_[i].push_back(static_cast<float>(kFactors[i] * std::pow(frequency, i + 1)));
    }
  }
}

double TurnedMeans::PositionOf(int64_t i, int64_t page) const {
  return static_cast<double>(page * kPageTokens) + (i < n_fast_ ? 0 : kMiddle);
}

void TurnedMeans::Turn(const float* mean, int64_t page, float* columns) const {
  const auto half = static_cast<int64_t>(frequencies_.size());
  for (int64_t i = 0; i < half; ++i) {
    const double angle = PositionOf(i, page) * frequencies_[i];
    const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
    const float a = c * mean[i] - s * mean[half + i], b = s * mean[i] + c * mean[half + i];
    const float *cos = turns_.data() + i * kPageTokens, *sin = cos + half * kPageTokens;
    float *first = columns + i * kPageTokens, *second = first + half * kPageTokens;
    for (int64_t t = 0; t < kPageTokens; ++t) {
      first[t] = cos[t] * a - sin[t] * b;
      second[t] = sin[t] * a + cos[t] * b;
    }
  }
}

void TurnedMeans::Grow(int64_t n_pages, Pages& pages) const {
  if (frequencies_.empty()) return;
  const auto n_known = static_cast<int64_t>(pages.cos.size() / frequencies_.size());
  for (int64_t page = n_known; page < n_pages; ++page) {
    for (int64_t i = 0; i < static_cast<int64_t>(frequencies_.size()); ++i) {
      const double angle = PositionOf(i, page) * frequencies_[i];
      pages.cos.push_back(static_cast<float>(std::cos(angle)));
      pages.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
}

void TurnedMeans::FindTerms(const float* q, const float* a, const float* b, float* terms) const {
  const auto half = static_cast<int64_t>(frequencies_.size());
  const float* q2 = q + half;
  for (int64_t i = 0; i < n_fast_; ++i) {
    terms[i] = q[i] * a[i] + q2[i] * b[i];
    terms[n_fast_ + i] = q2[i] * a[i] - q[i] * b[i];
  }
  float sums[kPowers] = {};
  for (int64_t i = n_fast_; i < half; ++i) {
    const float even = q[i] * a[i] + q2[i] * b[i], odd = q2[i] * a[i] - q[i] * b[i];
    sums[0] += even;
    sums[1] += odd * powers_[0][i];
    sums[2] += even * powers_[1][i];
    sums[3] += odd * powers_[2][i];
  }
  std::copy_n(sums, kPowers, terms + 2 * n_fast_);
}

void TurnedMeans::Score(const Scored& scored, const Pages& pages,
                        std::vector<float>& scratch) const {
  const auto half = static_cast<int64_t>(frequencies_.size());
  const int64_t n_pages = scored.end - scored.begin, n = n_terms();
  // The turned mean lies behind the terms of all rows and pages.
  float *terms = scratch.data(), *a = terms + scored.n_rows * n_pages * n, *b = a + half;
  for (int64_t page = 0; page < n_pages; ++page) {
    const float* cos = pages.cos.data() + (scored.begin + page) * half;
    const float* sin = pages.sin.data() + (scored.begin + page) * half;
    for (int64_t i = 0; i < half; ++i) {
      a[i] = cos[i] * scored.mean[i] - sin[i] * scored.mean[half + i];
      b[i] = sin[i] * scored.mean[i] + cos[i] * scored.mean[half + i];
    }
    for (int64_t r = 0; r < scored.n_rows; ++r) {
      FindTerms(scored.q + r * scored.ld_q, a, b, terms + (r * n_pages + page) * n);
    }
  }
  GemmArgs args;
  args.lda = n;
  args.b = terms_.data(), args.b_row_stride = kPageTokens;
  args.b_panel_stride = Kernels().panel_columns;
  args.ldc = kPageTokens;
  args.n_rows = n_pages, args.n_cols = kPageTokens, args.k = n;
  for (int64_t r = 0; r < scored.n_rows; ++r) {
    args.a = terms + r * n_pages * n;
    args.c = scored.scores + r * scored.ld_scores;
    Kernels().Gemm(StorageType::kFloat32, args);
  }
}

}  // namespace lowkey
