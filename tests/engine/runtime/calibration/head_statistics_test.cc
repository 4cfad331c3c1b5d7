#include "engine/runtime/calibration/head_statistics.h"

#include <cmath>
#include <random>

#include "engine/base/dtype.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr AttentionGeometry kGeometry{2, 4, 2, 8, std::nullopt};
constexpr int64_t kRows = 400;

// Rows [n][q | k | v] whose keys and queries are the same before RoPE wherever they stand, but for
// little noise.
struct Rotated {
  const int64_t ld = kGeometry.q_dim() + kGeometry.k_dim() + kGeometry.v_dim();
  std::vector<float> rows;

  explicit Rotated(const std::vector<double>& frequencies) : rows(kRows * ld) {
    std::mt19937 rng(3);
    std::normal_distribution<float> noise(0, 0.05f);
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t h = 0; h < kGeometry.n_heads + 2 * kGeometry.n_kv_heads; ++h) {
        for (int64_t j = 0; j < 4; ++j) {
          float* x = &rows[i * ld + h * 8 + j];
          const bool turns = h < kGeometry.n_heads + kGeometry.n_kv_heads;
          const double angle = turns ? static_cast<double>(i) * frequencies[j] : 0;
          const double a = 1 + noise(rng), b = 2 + noise(rng);
          x[0] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
          x[4] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
        }
      }
    }
  }
  LayerRows Layer(int64_t layer) const {
    LayerRows out;
    out.layer = layer;
    out.q = rows.data();
    out.k = out.q + kGeometry.q_dim();
    out.v = out.k + kGeometry.k_dim();
    out.ld_qkv = ld;
    return out;
  }
};

HeadCodes CodesOf(int64_t context_tokens, const std::vector<double>& frequencies) {
  const Rotated rotated(frequencies);
  ThreadPool pool(2);
  HeadStatistics statistics(kGeometry, frequencies, context_tokens);
  SequenceCache sequence;
  const Segment all{&sequence, 0, kRows, 0};
  for (int64_t layer = 0; layer < 2; ++layer) statistics.Add(rotated.Layer(layer), {&all, 1}, pool);
  int64_t n_found = 0;
  const auto codes = statistics.FindCodes(pool, [&](int64_t n) { n_found = n; });
  EXPECT_TRUE(codes.ok()) << codes.status();
  EXPECT_EQ(n_found, statistics.n_codes());
  return *codes;
}

// The mean of keys is that before RoPE. What is left of these keys are little differences, which
// are as large after RoPE.
TEST(HeadStatistics, KeysHaveTheirMeanBeforeRope) {
  const HeadCodes codes = CodesOf(100000, {1, 0.1, 1e-3, 1e-9});
  EXPECT_TRUE(codes.CheckFits(kGeometry).ok());
  for (const PrincipalCode& code : codes.keys) {
    for (int64_t j = 0; j < 8; ++j) EXPECT_NEAR(code.mean[j], j < 4 ? 1 : 2, 0.02) << j;
  }
}

// Keys before RoPE differ in numbers that go together. After RoPE at positions all over the context
// they differ as the mean over these positions says.
TEST(HeadStatistics, DifferencesTurnToPositionsAllOverTheContext) {
  constexpr int64_t kContext = 40;
  const std::vector<double> frequencies = {0.09, 0.05, 0.02, 0.01};
  const auto turn = [&](const double* x, int64_t position, double* out) {
    for (int64_t j = 0; j < 4; ++j) {
      const double angle = static_cast<double>(position) * frequencies[j];
      out[j] = x[j] * std::cos(angle) - x[j + 4] * std::sin(angle);
      out[j + 4] = x[j] * std::sin(angle) + x[j + 4] * std::cos(angle);
    }
  };
  Rotated rotated(frequencies);
  std::vector<double> want(64);
  std::mt19937 rng(4);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < kRows; ++i) {
    double x[8], out[8];
    const double common = normal(rng), other = normal(rng);
    for (int64_t j = 0; j < 8; ++j) {
      x[j] = common * (j % 3 - 0.7) + other * (0.2 * static_cast<double>(j) - 0.5);
    }
    for (int64_t p = 0; p < kContext; ++p) {
      turn(x, p, out);
      for (int64_t j = 0; j < 64; ++j) want[j] += out[j / 8] * out[j % 8] / (kRows * kContext);
    }
    turn(x, i, out);
    float* keys = &rotated.rows[i * rotated.ld + kGeometry.q_dim()];
    for (int64_t j = 0; j < 8; ++j) keys[j] = static_cast<float>(out[j]);
  }
  ThreadPool pool(1);
  HeadStatistics statistics(kGeometry, frequencies, kContext);
  SequenceCache sequence;
  const Segment all{&sequence, 0, kRows, 0};
  for (int64_t layer = 0; layer < 2; ++layer) statistics.Add(rotated.Layer(layer), {&all, 1}, pool);
  const HeadCodes codes = *statistics.FindCodes(pool, nullptr);
  const PrincipalCode& code = codes.keys[0];
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) {
      double sum = 0;
      for (int64_t e = 0; e < 8; ++e) {
        sum += double{ToFloat(BFloat16{code.decode[i * 8 + e]})} * code.variances[e] *
               ToFloat(BFloat16{code.decode[j * 8 + e]});
      }
      EXPECT_NEAR(sum, want[i * 8 + j], 0.04) << i << ", " << j;
    }
  }
}

TEST(HeadStatistics, AContextOfOneTokenTurnsEverythingBack) {
  const HeadCodes codes = CodesOf(1, {1, 0.1, 0.01, 0.001});
  for (const std::vector<PrincipalCode>* half : {&codes.keys, &codes.values}) {
    for (const PrincipalCode& code : *half) {
      for (int64_t j = 0; j < 8; ++j) EXPECT_NEAR(code.mean[j], j < 4 ? 1 : 2, 0.02) << j;
    }
  }
}

}  // namespace
}  // namespace lowkey
