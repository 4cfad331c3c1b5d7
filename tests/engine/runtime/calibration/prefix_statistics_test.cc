#include "engine/runtime/calibration/prefix_statistics.h"

#include <cmath>
#include <random>

#include "engine/base/dtype.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr AttentionGeometry kGeometry{2, 4, 2, 8, std::nullopt};

std::vector<double> Frequencies() { return {1, 0.1, 0.01, 0.001}; }

// Rows [n][q | k | v] whose queries and keys are known before RoPE.
struct Rotated {
  std::vector<float> plain, rows;
  int64_t ld = kGeometry.q_dim() + kGeometry.k_dim() + kGeometry.v_dim();

  explicit Rotated(int64_t n) {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    plain.resize(n * ld);
    for (float& x : plain) x = 1 + normal(rng);
    rows = plain;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t h = 0; h < kGeometry.n_heads + kGeometry.n_kv_heads; ++h) {
        for (int64_t j = 0; j < 4; ++j) {
          float& a = rows[i * ld + h * 8 + j];
          float& b = rows[i * ld + h * 8 + j + 4];
          const double angle = static_cast<double>(i) * Frequencies()[j];
          const double x = a, y = b;
          a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
          b = static_cast<float>(y * std::cos(angle) + x * std::sin(angle));
        }
      }
    }
  }
  LayerRows Layer(int64_t layer, int64_t first) const {
    LayerRows out;
    out.layer = layer;
    out.q = rows.data() + first * ld;
    out.k = out.q + kGeometry.q_dim();
    out.v = out.k + kGeometry.k_dim();
    out.ld_qkv = ld;
    return out;
  }
};

TEST(PrefixStatistics, SeesKeysBeforeRopeAndLeavesOutTheFirstTokens) {
  constexpr int64_t kRows = 300;
  const Rotated rotated(kRows);
  ThreadPool pool(2);
  PrefixStatistics whole(kGeometry, Frequencies()), cut(kGeometry, Frequencies());
  SequenceCache sequence;
  for (int64_t layer = 0; layer < 2; ++layer) {
    const Segment all{&sequence, 0, kRows, 0};
    whole.Add(rotated.Layer(layer, 0), {&all, 1}, pool);
    const Segment parts[] = {{&sequence, 0, 3, 0}, {&sequence, 3, 200, 3}};
    cut.Add(rotated.Layer(layer, 0), parts, pool);
    const Segment rest{&sequence, 203, kRows - 203, 0};
    cut.Add(rotated.Layer(layer, 203), {&rest, 1}, pool);
  }
  EXPECT_EQ(whole.n_tokens(), kRows - PrefixStatistics::kSkippedTokens);
  EXPECT_EQ(cut.n_tokens(), whole.n_tokens());
  const absl::StatusOr<PrefixCodes> codes = whole.FindCodes(pool, nullptr);
  const absl::StatusOr<PrefixCodes> other = cut.FindCodes(pool, nullptr);
  ASSERT_TRUE(codes.ok() && other.ok());
  EXPECT_TRUE(codes->CheckFits(kGeometry).ok());
  EXPECT_EQ(codes->n_groups, 1);
  for (int64_t j = 0; j < codes->group.dim(); ++j) {
    double mean = 0;
    for (int64_t i = 4; i < kRows; ++i) {
      mean += rotated.plain[i * rotated.ld + kGeometry.q_dim() + j] / (kRows - 4);
    }
    EXPECT_NEAR(codes->code(1, 0).mean[j], mean, 1e-4) << j;
    EXPECT_NEAR(other->code(1, 0).mean[j], mean, 1e-4) << j;
    EXPECT_NEAR(codes->code(0, 0).variances[j], other->code(0, 0).variances[j],
                1e-3 * codes->code(0, 0).variances[0]);
  }
}

TEST(PrefixCodes, RefuseAnotherShape) {
  PrefixCodes codes;
  EXPECT_EQ(codes.CheckFits(kGeometry).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lowkey
