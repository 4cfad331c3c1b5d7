#include "engine/attention/atp/calibrated/token_index.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr AttentionGeometry kGeometry{2, 4, 2, 20, std::nullopt, StorageType::kFloat32};
constexpr int64_t kDim = 20, kNumber = 3;  // of a page in its sequence

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
  // Holds keys and values as the index gives them back.
  struct Read {
    std::vector<double> keys, values;
  };
  Read Coded(int64_t layer, int64_t head, const std::vector<float>& keys,
             const std::vector<float>& values) {
    std::vector<std::byte> page(TokenIndex::PageBytes(kGeometry), std::byte{0xff});
    TokenIndex::Scratch scratch;
    index_.Encode({layer, head, kNumber, keys.data(), values.data()}, scratch, page.data(),
                  nullptr);
    const IndexedPage read = ReadIndex(kGeometry, index_, layer, head, page);
    const TokenIndex::Half &key = index_.keys(layer, head), &value = index_.values(layer, head);
    Read out{read.keys.Restored(key, kDim), read.values.Restored(value, kDim)};
    for (int64_t t = 0; t < kPageTokens; ++t) {
      const std::vector<double> mean =
          TurnedMean(codes_.heads, key.mean(), kNumber * kPageTokens + t);
      for (int64_t j = 0; j < kDim; ++j) {
        out.keys[j * kPageTokens + t] += mean[j];
        out.values[j * kPageTokens + t] += value.mean()[j];
      }
    }
    return out;
  }

  const PrincipalCodes codes_ = TestCodes(kGeometry);
  const TokenIndex index_{kGeometry, codes_.heads};
};

// Returns the squared differences of x and y over those of x from its mean.
double Lost(const std::vector<float>& x, const std::vector<double>& y) {
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
      EXPECT_LT(Lost(keys, read.keys), 0.45);     // by 8 of 20 components
      EXPECT_LT(Lost(values, read.values), 0.4);  // by 8
      EXPECT_GT(Lost(keys, read.keys), 0.01);
    }
  }
}

// Returns [kDim][64] as the index and the rest give it back.
std::vector<double> Whole(const HeadCodes& codes, const TokenIndex& index,
                          const std::vector<std::byte>& page, const TokenIndex::Half& half,
                          bool is_key, const TokenRest::Half& rest, const std::byte* kept,
                          int64_t token_bytes) {
  const TokenIndex::Page at = TokenIndex::PageAt(kGeometry, page.data());
  std::vector<int8_t> lead(half.n()), levels(rest.n_padded() + 4);
  std::vector<double> x(kDim * kPageTokens);
  for (int64_t t = 0; t < kPageTokens; ++t, kept += token_bytes) {
    const float unit =
        TokenRest::kLeadUnit * (is_key ? index.ReadKey(at, t, half.bands, lead.data())
                                       : index.ReadValue(at, t, half.bands, lead.data()));
    TokenRest::ReadLead(rest, kept, lead.data());
    const float scale = TokenRest::Read(rest, kept, levels.data());
    const std::vector<double> mean = TurnedMean(codes, half.mean(), kNumber * kPageTokens + t);
    for (int64_t i = 0; i < kDim; ++i) {
      double& sum = x[i * kPageTokens + t] = is_key ? mean[i] : half.mean()[i];
      for (int64_t j = 0; j < half.n(); ++j) sum += unit * lead[j] * half.rows[j * half.width + i];
      for (int64_t j = 0; j < rest.n(); ++j) {
        sum += scale * levels[j] * rest.rows[j * rest.width + i];
      }
    }
  }
  return x;
}

TEST_F(TokenIndexTest, RestBringsBackWhatTheIndexLoses) {
  const std::vector<float> keys = Columns(7), values = Columns(8);
  const TokenRest::Half &rest_keys = index_.rest().keys(1, 1),
                        &rest_values = index_.rest().values(1, 1);
  const int64_t token_bytes = rest_keys.bytes() + rest_values.bytes();
  std::vector<std::byte> page(TokenIndex::PageBytes(kGeometry)), rest(kPageTokens * token_bytes);
  TokenIndex::Scratch scratch;
  index_.Encode({1, 1, kNumber, keys.data(), values.data()}, scratch, page.data(), rest.data());
  const std::vector<double> key = Whole(codes_.heads, index_, page, index_.keys(1, 1), true,
                                        rest_keys, rest.data(), token_bytes);
  const std::vector<double> value =
      Whole(codes_.heads, index_, page, index_.values(1, 1), false, rest_values,
            rest.data() + rest_keys.bytes(), token_bytes);
  EXPECT_LT(Lost(keys, key), 0.1);
  EXPECT_LT(Lost(values, value), 0.03);
}

// Layers and heads have bases of their own.
TEST_F(TokenIndexTest, EveryHeadIsCodedByItsOwnBasis) {
  const std::vector<float> keys = Columns(3), values = Columns(4);
  const Read one = Coded(1, 0, keys, values), other = Coded(1, 1, keys, values);
  EXPECT_NE(one.keys, other.keys);
  EXPECT_NE(one.values, other.values);
}

TEST_F(TokenIndexTest, LargeVectorsHaveLargeGains) {
  const std::vector<float> keys = Columns(5, 3), values = Columns(6, 3);
  const Read read = Coded(0, 1, keys, values);
  EXPECT_LT(Lost(keys, read.keys), 0.45);
  EXPECT_LT(Lost(values, read.values), 0.45);
}

TEST(PlanBands, GiveBitsWhereVarianceIs) {
  // One component has all the variance, or all have the same.
  std::vector<float> variances(64);
  variances[0] = 1;
  EXPECT_EQ(TokenIndex::PlanBands(variances, 24, 4), (LevelBands{{24, 0, 0}}));
  std::fill(variances.begin(), variances.end(), 1.0f);
  EXPECT_EQ(TokenIndex::PlanBands(variances, 16, 8), (LevelBands{{0, 0, 64}}));
  for (int64_t j = 0; j < 64; ++j) variances[j] = std::exp2(-0.2f * static_cast<float>(j));
  const LevelBands falling = TokenIndex::PlanBands(variances, 24, 4);
  EXPECT_GT(falling.n[0], 0);
  EXPECT_GT(falling.n[1], 0);
  EXPECT_EQ(falling.n_nibbles(), 24);
}

TEST(PlanBands, FillTheNibblesOfAnyHead) {
  for (int64_t dim = 2; dim <= 256; dim += 2) {
    std::vector<float> variances(dim);
    for (int64_t j = 0; j < dim; ++j) variances[j] = 1 / static_cast<float>(1 + j);
    for (const auto& [n, step] : {std::pair{TokenIndex::KeyNibbles(dim), int64_t{4}},
                                  std::pair{TokenIndex::ValueNibbles(dim), int64_t{8}}}) {
      const LevelBands bands = TokenIndex::PlanBands(variances, n, step);
      EXPECT_EQ(bands.n_nibbles(), n) << dim;
      EXPECT_LE(bands.n_components(), std::max(n, dim)) << dim;
      for (int band = 0; band < LevelBands::kBands; ++band) {
        EXPECT_EQ(bands.nibbles(band) % step, 0) << dim;
      }
    }
  }
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
