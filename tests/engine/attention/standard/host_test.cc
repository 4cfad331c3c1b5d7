#include "engine/attention/standard/host.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/dtype.h"
#include "engine/kernels/kernels.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

struct StandardCase {
  StorageType type;
  double exact_tolerance;    // against a reference over the cache's own rounded keys and values
  double rounded_tolerance;  // where queries and weights may be rounded to bf16 too

  double tolerance() const {
    const bool is_rounded = TestDevice() != nullptr || Kernels().rounds_activations;
    return is_rounded ? rounded_tolerance : exact_tolerance;
  }
};

class StandardAttentionTest : public testing::TestWithParam<StandardCase> {
 protected:
  void ExpectMatchesReference(AttentionGeometry g, int64_t n_tokens) const {
    g.cache_type = GetParam().type;
    const AttentionRows rows = RandomRows(g, n_tokens, 1);
    const std::vector<float> out = RunSequence(rows, {Standard(), 96});
    const int64_t layer_size = n_tokens * g.n_heads * g.head_dim;
    for (int64_t layer = 0; layer < g.n_layers; ++layer) {
      const double difference =
          MaxDifference(out.data() + layer * layer_size, ReferenceStandard(rows, layer));
      EXPECT_LE(difference, GetParam().tolerance())
          << n_tokens << " tokens, " << g.n_heads << "/" << g.n_kv_heads << " heads of "
          << g.head_dim << ", window " << g.sliding_window.value_or(0);
      worst_ = std::max(worst_, difference);
    }
  }
  void TearDown() override { RecordProperty("max_difference", std::to_string(worst_)); }

  mutable double worst_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Caches, StandardAttentionTest,
                         testing::Values(StandardCase{StorageType::kFloat32, 2e-6, 2e-6},
                                         StandardCase{StorageType::kBFloat16, 2e-6, 1e-2}),
                         [](const auto& info) {
                           return info.param.type == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(StandardAttentionTest, MatchesTheReferenceAtEveryShape) {
  for (int64_t group : {1, 2, 4, 8}) {
    for (int64_t head_dim : {8, 20, 32, 64, 80, 128}) {
      ExpectMatchesReference({1, group, 1, head_dim, {}, {}}, 130);
      ExpectMatchesReference({1, 2 * group, 2, head_dim, {}, {}}, 33);
    }
  }
}

TEST_P(StandardAttentionTest, MatchesTheReferenceAtEveryLength) {
  for (int64_t n : {1, 2, 3, 15, 16, 17, 47, 48, 49, 63, 64, 65, 127, 128, 129, 200, 256, 300}) {
    ExpectMatchesReference({2, 4, 2, 16, {}, {}}, n);
  }
}

TEST_P(StandardAttentionTest, MatchesTheReferenceUnderASlidingWindow) {
  for (int64_t window : {1, 16, 63, 64, 65, 100, 1000}) {
    for (int64_t n : {1, 64, 65, 300}) ExpectMatchesReference({1, 3, 1, 20, window, {}}, n);
  }
}

TEST_P(StandardAttentionTest, MatchesTheReferenceWithWideHeadCounts) {
  ExpectMatchesReference({1, 64, 1, 8, {}, {}}, 70);  // more query heads than rows in a task
  ExpectMatchesReference({3, 6, 6, 8, {}, {}}, 70);
}

TEST_P(StandardAttentionTest, OneVisibleTokenIsItsValue) {
  const AttentionRows rows = RandomRows({1, 2, 2, 12, 1, GetParam().type}, 70, 2);
  const std::vector<float> out = RunSequence(rows, {Standard(), 7});
  EXPECT_EQ(MaxDifference(out.data(), ReferenceStandard(rows, 0)), 0.0);
}

TEST_P(StandardAttentionTest, HugeScoresPickOneToken) {
  AttentionRows rows = RandomRows({1, 1, 1, 16, {}, GetParam().type}, 100, 3);
  for (int64_t i = 0; i < 100; ++i) {
    for (int64_t j = 0; j < 32; ++j) {
      float& x = rows.row(0, i)[j];
      x = ToFloat(ToBFloat16(1e4f * x));  // so that a rounded query picks the same token
    }
  }
  EXPECT_LE(MaxDifference(RunSequence(rows, {Standard()}).data(), ReferenceStandard(rows, 0)),
            1e-4);
}

// Spans of 1,024 tokens: few rows are spread over threads span by span, a long prompt is not.
TEST_P(StandardAttentionTest, RowsSpreadOverSpansHaveTheBitsOfRowsThatAreNot) {
  for (const std::optional<int64_t>& window :
       {std::optional<int64_t>(), std::optional<int64_t>(1500), std::optional<int64_t>(70)}) {
    const AttentionRows rows = RandomRows({1, 2, 1, 8, window, GetParam().type}, 2110, 4);
    for (CacheStorage storage : {CacheStorage::kDtype, CacheStorage::kInt4}) {
      const std::vector<float> at_once = RunSequence(rows, {Standard(storage)});
      const double tolerance = storage == CacheStorage::kDtype ? GetParam().tolerance() : 0.5;
      EXPECT_LE(MaxDifference(at_once.data(), ReferenceStandard(rows, 0)), tolerance);
      RunOptions by_token{Standard(storage), 1000};
      by_token.n_prompt_tokens = 2040;
      for (int n_threads : {1, 3}) {
        by_token.n_threads = n_threads;
        EXPECT_EQ(RunSequence(rows, by_token), at_once)
            << "window " << window.value_or(0) << ", " << n_threads << " threads";
      }
    }
  }
}

TEST_P(StandardAttentionTest, BoundIsWholePages) {
  const AttentionGeometry g{2, 4, 2, 20, {}, GetParam().type};
  MechanismRunner runner(g, Mechanism::kStandard);
  const int64_t page = PageBytes(g);
  for (const auto& [n_tokens, pages] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {64, 1}, {65, 2}, {1000, 16}}) {
    EXPECT_EQ(runner.mechanism().BoundBytes(Standard(), {1, n_tokens, 8}), pages * page);
  }
}

// Devices have no int3 and int2.
std::vector<CacheStorage> QuantizedStorages() {
  if (TestDevice() != nullptr) return {CacheStorage::kInt8, CacheStorage::kInt4};
  return {CacheStorage::kInt8, CacheStorage::kInt4, CacheStorage::kInt3, CacheStorage::kInt2};
}

// Numbers x[0], x[step], .. as a closed page gives them back (quantized_kv.h).
void RoundTrip(CacheStorage storage, int64_t n, int64_t step, float* x) {
  const auto lowest = static_cast<float>(-(1 << (CodeBits(storage) - 1)));
  const float highest = -lowest - 1;
  float low = x[0], high = x[0];
  for (int64_t i = 1; i < n; ++i) {
    low = std::min(low, x[i * step]);
    high = std::max(high, x[i * step]);
  }
  const float share = highest / (highest - lowest);
  const float middle = ToFloat(ToBFloat16(share * low + (1 - share) * high));
  const float exact_scale = std::max((high - middle) / highest, (low - middle) / lowest);
  float scale = ToFloat(ToBFloat16(exact_scale));
  if (scale < exact_scale) scale = ToFloat({static_cast<uint16_t>(ToBFloat16(scale).bits + 1)});
  for (int64_t i = 0; i < n; ++i) {
    const float code = std::clamp(std::nearbyint((x[i * step] - middle) / scale), lowest, highest);
    x[i * step] = middle + scale * code;
  }
}

// What a row of `page` reads: earlier pages as they were quantized, its own as the cache holds it.
AttentionRows AsReadFrom(const AttentionRows& rows, CacheStorage storage, int64_t page) {
  const AttentionGeometry& g = rows.geometry;
  const int64_t d = g.head_dim, ld = rows.ld();
  AttentionRows read = rows;
  read.geometry.cache_type = StorageType::kFloat32;
  for (int64_t t = 0; t < rows.n_tokens; ++t) {
    for (int64_t j = g.n_heads * d; j < (g.n_heads + 2 * g.n_kv_heads) * d; ++j) {
      float& x = read.row(0, t)[j];
      if (g.cache_type == StorageType::kBFloat16) x = ToFloat(ToBFloat16(x));
    }
  }
  for (int64_t first = 0; first < page * kPageTokens; first += 32) {
    float* k = read.row(0, first) + g.n_heads * d;
    for (int64_t j = 0; j < g.n_kv_heads * d; ++j) RoundTrip(storage, 32, ld, k + j);
  }
  for (int64_t t = 0; t < page * kPageTokens; ++t) {
    float* v = read.row(0, t) + (g.n_heads + g.n_kv_heads) * d;
    for (int64_t h = 0; h < g.n_kv_heads; ++h) {
      for (int64_t j = 0; j < d; j += 32) {
        RoundTrip(storage, std::min<int64_t>(32, d - j), 1, v + h * d + j);
      }
    }
  }
  return read;
}

TEST_P(StandardAttentionTest, QuantizedMatchesTheDefinition) {
  for (CacheStorage storage : QuantizedStorages()) {
    for (int64_t head_dim : {8, 20, 32, 64, 80, 128}) {
      for (std::optional<int64_t> window : {std::optional<int64_t>(), std::optional<int64_t>(70)}) {
        const AttentionGeometry g{1, 6, 2, head_dim, window, GetParam().type};
        const AttentionRows rows = RandomRows(g, 200, 4);
        const std::vector<float> out = RunSequence(rows, {Standard(storage), 96});
        for (int64_t page = 0; page < 4; ++page) {
          std::vector<double> want = ReferenceStandard(AsReadFrom(rows, storage, page), 0);
          const int64_t first = page * kPageTokens * g.n_heads * head_dim;
          want = {want.begin() + first,
                  want.begin() +
                      std::min<int64_t>(want.size(), first + kPageTokens * g.n_heads * head_dim)};
          EXPECT_LE(MaxDifference(out.data() + first, want), std::max(5e-6, GetParam().tolerance()))
              << NameOf(storage) << ", heads of " << head_dim << ", page " << page;
        }
      }
    }
  }
}

// Half a step of 1/255, 1/15, 1/7 or 1/3 of the spread of 32 normal numbers, about 4.
TEST_P(StandardAttentionTest, QuantizedErrorIsASmallPartOfTheOutput) {
  const AttentionRows rows = RandomRows({1, 4, 2, 64, {}, GetParam().type}, 500, 5);
  const std::vector<float> exactly = RunSequence(rows, {Standard()});
  const std::vector<double> exact(exactly.begin(), exactly.end());
  const auto error = [&](CacheStorage storage) {
    return MaxDifference(RunSequence(rows, {Standard(storage), 64}).data(), exact);
  };
  EXPECT_LT(error(CacheStorage::kInt8), 0.01);
  EXPECT_LT(error(CacheStorage::kInt4), 0.2);
  EXPECT_GT(error(CacheStorage::kInt4), 4 * error(CacheStorage::kInt8));
  if (TestDevice() != nullptr) return;
  EXPECT_LT(error(CacheStorage::kInt3), 0.4);
  EXPECT_LT(error(CacheStorage::kInt2), 1.0);
  EXPECT_GT(error(CacheStorage::kInt2), error(CacheStorage::kInt3));
  EXPECT_GT(error(CacheStorage::kInt3), error(CacheStorage::kInt4));
}

TEST_P(StandardAttentionTest, QuantizedBoundIsClosedPagesAndAStepsOwn) {
  const AttentionGeometry g{2, 4, 2, 32, {}, GetParam().type};
  MechanismRunner runner(g, Mechanism::kStandard);
  const int64_t page = PageBytes(g);
  for (CacheStorage storage : QuantizedStorages()) {
    const int64_t closed = QuantizedPageBytes(g, storage);
    EXPECT_LT(closed, page * (CodeBits(storage) + 2) / 16);
    const auto bound = [&](int64_t n_tokens, int64_t max_step_rows) {
      return runner.mechanism().BoundBytes(Standard(storage), {1, n_tokens, max_step_rows});
    };
    EXPECT_EQ(bound(63, 1), page);
    EXPECT_EQ(bound(64, 1), page + closed);
    EXPECT_EQ(bound(1000, 1), page + 15 * closed);
    EXPECT_EQ(bound(1000, 2), 2 * page + 15 * closed);
    EXPECT_EQ(bound(1000, 512), 9 * page + 15 * closed);
    EXPECT_EQ(bound(100, 512), 2 * page + closed);
  }
}

// A plan that is not carried out leaves nothing that a later step would take for quantized.
TEST_P(StandardAttentionTest, APlanThatWasDroppedQuantizesNothing) {
  const AttentionRows rows = RandomRows({1, 2, 1, 16, {}, GetParam().type}, 300, 6);
  MechanismRunner runner(rows.geometry, Mechanism::kStandard);
  SequenceCache sequence = NewSequence(Standard(CacheStorage::kInt8), 300);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 100, &out}}).ok());
  const Segment dropped{&sequence, 100, 150, 0};
  ASSERT_TRUE(runner.mechanism().Plan({&dropped, 1}).ok());
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 200, &out}}).ok());
  EXPECT_TRUE(SameBits(out, RunSequence(rows, {Standard(CacheStorage::kInt8)})));
}

// Another sequence's leftovers in a page are never read, not even when they are not numbers.
TEST_P(StandardAttentionTest, LeftoversInAPageAreInvisible) {
  const AttentionGeometry g{1, 2, 1, 20, {}, GetParam().type};
  MechanismRunner runner(g, Mechanism::kStandard);
  AttentionRows poison = RandomRows(g, 64, 1);
  std::fill(poison.data.begin(), poison.data.end(), std::nanf(""));
  {
    SequenceCache sequence = NewSequence(Standard(), 64);
    std::vector<float> out;
    ASSERT_TRUE(runner.Step({{&sequence, &poison, 64, &out}}).ok());
  }
  const AttentionRows rows = RandomRows(g, 40, 2);
  SequenceCache sequence = NewSequence(Standard(), 40);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 40, &out}}).ok());
  EXPECT_TRUE(SameBits(out, RunSequence(rows, {Standard()})));
}

}  // namespace
}  // namespace lowkey
