#include "engine/attention/atp/calibrated/turned_means.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/round_up.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

namespace {

constexpr double kMiddle = 0.5 * (kPageTokens - 1);
constexpr int64_t kStep = 8;  // frequencies at once, a loop that compilers vectorize

// Writes cos * x + sign * sin * y of n numbers, and of those up to the next multiple of kStep.
template <int kSign>
void TurnPairs(const float* cos, const float* x, const float* sin, const float* y, int64_t n,
               float* to) {
  for (int64_t i = 0; i < n; i += kStep) {
    float turned[kStep];
    for (int64_t j = 0; j < kStep; ++j) {
      turned[j] = cos[i + j] * x[i + j] + kSign * (sin[i + j] * y[i + j]);
    }
    std::memcpy(to + i, turned, sizeof(turned));
  }
}

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

int64_t TurnedMeans::n_fast_padded() const { return RoundUp(n_fast_, kStep); }

void TurnedMeans::Grow(int64_t n_pages, Pages& pages) const {
  const auto half = static_cast<int64_t>(frequencies_.size());
  for (; pages.n < n_pages; pages.n += kChunk) {
    const int64_t n_fast = n_fast_padded();
    pages.cos.resize((pages.n + kChunk) * n_fast);
    pages.sin.resize((pages.n + kChunk) * n_fast);
    const size_t chunk = pages.powers.size();
    pages.powers.resize(chunk + 2 * n_slow() * kChunk * kPowers);
    for (int64_t p = 0; p < kChunk; ++p) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = PositionOf(i, pages.n + p) * frequencies_[i];
        const auto c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle));
        if (i < n_fast_) {
          pages.cos[(pages.n + p) * n_fast + i] = c, pages.sin[(pages.n + p) * n_fast + i] = s;
          continue;
        }
        float* even = pages.powers.data() + chunk + ((i - n_fast_) * kChunk + p) * kPowers;
        float* odd = even + n_slow() * kChunk * kPowers;
        even[0] = c, odd[0] = s;
        even[1] = -s * powers_[0][i], odd[1] = c * powers_[0][i];
        even[2] = c * powers_[1][i], odd[2] = s * powers_[1][i];
        even[3] = -s * powers_[2][i], odd[3] = c * powers_[2][i];
      }
    }
  }
}

int64_t TurnedMeans::ScratchSize(int64_t n_rows) const {
  return n_rows * (row_size() + kChunk * kPowers) + kChunk * n_terms() + kStep;
}

TurnedMeans::Turned TurnedMeans::TurnedAt(float* row) const {
  return {row, row + n_fast_padded(), row + 2 * n_fast_padded()};
}

void TurnedMeans::FindProducts(const float* q, const float* mean, const Turned& row) const {
  const auto half = static_cast<int64_t>(frequencies_.size());
  for (int64_t i = 0; i < half; ++i) {
    const float even = q[i] * mean[i] + q[half + i] * mean[half + i];
    const float odd = q[half + i] * mean[i] - q[i] * mean[half + i];
    if (i < n_fast_) {
      row.fast[i] = even, row.fast_odd[i] = odd;
    } else {
      row.slow[i - n_fast_] = even, row.slow[n_slow() + i - n_fast_] = odd;
    }
  }
  std::fill(row.fast + n_fast_, row.fast + n_fast_padded(), 0.0f);
  std::fill(row.fast_odd + n_fast_, row.fast_odd + n_fast_padded(), 0.0f);
}

void TurnedMeans::FindTerms(const Turned& row, const Pages& pages, int64_t page,
                            const float* powers, float* terms) const {
  const float* cos = pages.cos.data() + page * n_fast_padded();
  const float* sin = pages.sin.data() + page * n_fast_padded();
  TurnPairs<1>(cos, row.fast, sin, row.fast_odd, n_fast_, terms);
  // The next ones overwrite what these write behind their place.
  TurnPairs<-1>(cos, row.fast_odd, sin, row.fast, n_fast_, terms + n_fast_);
  std::copy_n(powers, kPowers, terms + 2 * n_fast_);
}

void TurnedMeans::Score(const Scored& scored, const Pages& pages,
                        std::vector<float>& scratch) const {
  const int64_t n_columns = kChunk * kPowers, n = n_terms(), n_rows = scored.n_rows;
  float *rows = scratch.data(), *sums = rows + n_rows * row_size(),
        *terms = sums + n_rows * n_columns;
  for (int64_t r = 0; r < n_rows; ++r) {
    FindProducts(scored.q + r * scored.ld_q, scored.mean, TurnedAt(rows + r * row_size()));
  }
  GemmArgs of_powers;
  of_powers.a = TurnedAt(rows).slow, of_powers.lda = row_size();
  of_powers.b_row_stride = n_columns, of_powers.b_panel_stride = Kernels().panel_columns;
  of_powers.c = sums, of_powers.ldc = n_columns;
  of_powers.n_rows = n_rows, of_powers.n_cols = n_columns, of_powers.k = 2 * n_slow();
  GemmArgs of_terms;
  of_terms.a = terms, of_terms.lda = n;
  of_terms.b = terms_.data(), of_terms.b_row_stride = kPageTokens;
  of_terms.b_panel_stride = Kernels().panel_columns;
  of_terms.ldc = kPageTokens, of_terms.n_cols = kPageTokens, of_terms.k = n;
  for (int64_t begin = scored.begin, end; begin < scored.end; begin = end) {
    const int64_t chunk = begin / kChunk;
    end = std::min(scored.end, (chunk + 1) * kChunk);
    if (n_slow() == 0) {
      std::fill_n(sums, n_rows * n_columns, 0.0f);
    } else {
      of_powers.b = pages.powers.data() + chunk * 2 * n_slow() * n_columns;
      Kernels().Gemm(StorageType::kFloat32, of_powers);
    }
    for (int64_t r = 0; r < n_rows; ++r) {
      const Turned row = TurnedAt(rows + r * row_size());
      for (int64_t page = begin; page < end; ++page) {
        const float* powers = sums + r * n_columns + page % kChunk * kPowers;
        FindTerms(row, pages, page, powers, terms + (page - begin) * n);
      }
      of_terms.n_rows = end - begin;
      of_terms.c = scored.scores + r * scored.ld_scores + (begin - scored.begin) * kPageTokens;
      Kernels().Gemm(StorageType::kFloat32, of_terms);
    }
  }
}

}  // namespace lowkey
