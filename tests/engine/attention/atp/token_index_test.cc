#include "engine/attention/atp/token_index.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr AttentionGeometry kGeometry{2, 4, 2, 20, std::nullopt, StorageType::kFloat32};
constexpr int64_t kDim = 20;

// Numbers [kDim][64] like those that TestCodes calibrates for.
std::vector<float> Columns(uint32_t seed, float size = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kDim * kPageTokens);
  for (int64_t j = 0; j < kDim; ++j) {
    for (int64_t t = 0; t < kPageTokens; ++t) {
      x[j * kPageTokens + t] =
          0.3f + size * normal(rng) * (0.5f + 1.5f / (1.0f + static_cast<float>(j)));
    }
  }
  return x;
}

class TokenIndexTest : public ::testing::Test {
 protected:
  // What the index gives back of keys and values: [kDim][64] each.
  struct Read {
    std::vector<float> keys, values;
  };
  Read Coded(int64_t layer, int64_t head, const std::vector<float>& keys,
             const std::vector<float>& values) {
    std::vector<std::byte> page(TokenIndex::PageBytes(kGeometry), std::byte{0xff});
    PrincipalScratch scratch;
    index_.Encode(layer, head, keys.data(), values.data(), scratch, page.data());
    Read read;
    std::vector<float> levels(index_.most_components() * kPageTokens);
    float gains[kPageTokens];
    index_.DecodeKeys(layer, head, page.data(), levels.data(), gains);
    read.keys = Restore(index_.keys(layer, head), levels, gains);
    index_.DecodeValues(layer, head, page.data(), levels.data(), gains);
    read.values = Restore(index_.values(layer, head), levels, gains);
    return read;
  }

  const PrincipalCodes codes_ = TestCodes(kGeometry);
  const TokenIndex index_{kGeometry, codes_.heads};

 private:
  static std::vector<float> Restore(const TokenIndex::Half& half, const std::vector<float>& levels,
                                    const float* gains) {
    std::vector<float> x(kDim * kPageTokens);
    for (int64_t i = 0; i < kDim; ++i) {
      for (int64_t t = 0; t < kPageTokens; ++t) {
        double sum = half.mean()[i];
        for (int64_t j = 0; j < half.n(); ++j) {
          sum += gains[t] * levels[j * kPageTokens + t] * half.rows[j * half.width + i];
        }
        x[i * kPageTokens + t] = static_cast<float>(sum);
      }
    }
    return x;
  }
};

// Returns the squared differences of x and y over those of x from its mean.
double Lost(const std::vector<float>& x, const std::vector<float>& y) {
  double lost = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    lost += (x[i] - y[i]) * (x[i] - y[i]);
    all += (x[i] - 0.3f) * (x[i] - 0.3f);
  }
  return lost / all;
}

TEST_F(TokenIndexTest, KeysAndValuesComeBackNearlyTheSame) {
  for (const int64_t layer : {0, 1}) {
    for (const int64_t head : {0, 1}) {
      const std::vector<float> keys = Columns(1), values = Columns(2);
      const Read read = Coded(layer, head, keys, values);
      EXPECT_LT(Lost(keys, read.keys), 0.3);      // of 1.5 bits a number
      EXPECT_LT(Lost(values, read.values), 0.4);  // of 1 bit
      EXPECT_GT(Lost(keys, read.keys), 0.01);
    }
  }
}

// The decoder of prefixes, which has no kernels, gives back the same.
TEST_F(TokenIndexTest, IsTheCodeOfPrefixesWithoutEscapes) {
  const std::vector<float> keys = Columns(3), values = Columns(4);
  const Read read = Coded(1, 0, keys, values);
  const PrincipalCode& code = codes_.heads.keys[2];
  const BitPlan plan = PlanBits(code.variances, TokenIndex::kKeyBits, LevelCodes::kMostBits);
  PrincipalScratch scratch;
  std::vector<std::byte> bytes;
  EncodeComponents(code, plan, keys.data(), scratch, bytes);
  bytes.resize(plan.fixed_bytes);  // no vector escapes
  std::vector<float> want(kDim * kPageTokens);
  ASSERT_TRUE(DecodeVectors(code, plan, bytes, scratch, want.data()).ok());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(read.keys[i], want[i], 1e-4) << i;
}

TEST_F(TokenIndexTest, LargeVectorsHaveLargeGains) {
  const std::vector<float> keys = Columns(5, 3), values = Columns(6, 3);
  const Read read = Coded(0, 1, keys, values);
  EXPECT_LT(Lost(keys, read.keys), 0.3);
  EXPECT_LT(Lost(values, read.values), 0.45);
}

TEST_F(TokenIndexTest, TakesATwelfthOfABf16Cache) {
  AttentionGeometry g = kGeometry;
  g.head_dim = 64;
  const double share = static_cast<double>(TokenIndex::PageBytes(g)) / (kPageTokens * 2 * 64 * 2);
  EXPECT_LT(share, 0.083);
}

TEST(HeadCodes, FitModelsOfTheirShapeAlone) {
  const PrincipalCodes codes = TestCodes(kGeometry);
  EXPECT_TRUE(codes.heads.CheckFits(kGeometry).ok());
  for (int64_t AttentionGeometry::*size :
       {&AttentionGeometry::n_layers, &AttentionGeometry::n_kv_heads,
        &AttentionGeometry::head_dim}) {
    AttentionGeometry other = kGeometry;
    other.*size *= 2;
    EXPECT_EQ(codes.heads.CheckFits(other).code(), absl::StatusCode::kFailedPrecondition);
  }
}

}  // namespace
}  // namespace lowkey
