#include "engine/lowrank/principal_code.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/base/dtype.h"
#include "engine/lowrank/codebook.h"
#include "engine/lowrank/principal_basis.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = kCodedTokens;
constexpr HeadGroup kGroup{2, 16, 16};
constexpr double kGains[] = {0.8, 1.1, 1.6, 2.8};

// Correlated vectors [n_rows][dim] around a mean, whose directions differ in variance.
std::vector<float> CorrelatedRows(int64_t dim, int64_t n_rows, uint32_t seed) {
  std::mt19937 mixing(7), rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> mix(dim * dim), rows(n_rows * dim), z(dim);
  for (float& m : mix) m = normal(mixing);
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < dim; ++j) z[j] = normal(rng) * std::pow(0.8f, static_cast<float>(j));
    for (int64_t j = 0; j < dim; ++j) {
      float sum = static_cast<float>(j % 5);
      for (int64_t k = 0; k < dim; ++k) sum += mix[j * dim + k] * z[k];
      rows[i * dim + j] = sum;
    }
  }
  return rows;
}

PrincipalCode MakeCode() {
  ThreadPool pool(1);
  MomentsScratch scratch;
  Moments x(kGroup.dim());
  x.Add(CorrelatedRows(kGroup.dim(), 2000, 1).data(), 2000, pool, scratch);
  std::vector<Moments> queries(kGroup.n_heads, Moments(kGroup.key_dim));
  for (Moments& q : queries)
    q.Add(CorrelatedRows(kGroup.key_dim, 500, 2).data(), 500, pool, scratch);
  return *FindPrincipalCode(kGroup, x, queries);
}

// The columns of x [dim][64].
std::vector<float> Columns(const std::vector<float>& rows, int64_t dim) {
  std::vector<float> x(dim * kTokens);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t j = 0; j < dim; ++j) x[j * kTokens + t] = rows[t * dim + j];
  }
  return x;
}

std::vector<std::byte> Encode(const PrincipalCode& code, const BitPlan& plan,
                              const std::vector<float>& x) {
  PrincipalScratch scratch;
  std::vector<std::byte> bytes;
  EncodeVectors(code, plan, x.data(), scratch, bytes);
  return bytes;
}

std::vector<float> Decode(const PrincipalCode& code, const BitPlan& plan,
                          const std::vector<std::byte>& bytes) {
  PrincipalScratch scratch;
  std::vector<float> x(code.dim * kTokens, -1.0f);
  EXPECT_TRUE(DecodeVectors(code, plan, bytes, scratch, x.data()).ok());
  return x;
}

double Element(const std::vector<uint16_t>& matrix, int64_t i) {
  return ToFloat(BFloat16{matrix[i]});
}

// The formulas of principal_code.h in double, without packing.
struct Reference {
  std::vector<double> y;          // [dim][64]
  double error[4][kTokens] = {};  // by gain
  double least[kTokens];

  Reference(const PrincipalCode& code, const BitPlan& plan, const std::vector<float>& x)
      : y(code.dim * kTokens) {
    for (int64_t t = 0; t < kTokens; ++t) {
      for (int64_t i = 0; i < code.dim; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < code.dim; ++j) {
          sum += Element(code.encode, i * code.dim + j) *
                 (static_cast<double>(x[j * kTokens + t]) - code.mean[j]);
        }
        y[i * kTokens + t] = sum;
        for (int g = 0; g < 4; ++g) {
          const double d = sum - Nearest(code, plan, i, g, sum);
          error[g][t] += d * d;
        }
      }
      least[t] = std::min({error[0][t], error[1][t], error[2][t], error[3][t]});
    }
  }

  static double Nearest(const PrincipalCode& code, const BitPlan& plan, int64_t i, int g,
                        double y) {
    if (plan.bits[i] == 0) return 0;
    const double scale = kGains[g] * std::sqrt(static_cast<double>(code.variances[i]));
    double best = std::numeric_limits<double>::infinity();
    for (const float level : CodebookOf(plan.density, plan.bits[i]).levels) {
      if (std::abs(y - level * scale) < std::abs(y - best)) best = level * scale;
    }
    return best;
  }
};

TEST(PlanBits, SpendsTheBudgetOnTheLargestVariances) {
  const std::vector<float> variances = {16, 4, 1, 0.25f, 0.01f, 0, 0, 0};
  const BitPlan plan = PlanBits(variances, 1.5);
  int64_t sum = 0;
  for (size_t i = 0; i < plan.bits.size(); ++i) {
    sum += plan.bits[i];
    if (i > 0) {
      EXPECT_LE(plan.bits[i], plan.bits[i - 1]);
    }
  }
  EXPECT_EQ(sum, 12);
  EXPECT_EQ(plan.bits[5], 0);  // has no variance
  double expected = 0;
  for (size_t i = 0; i < variances.size(); ++i) {
    expected += variances[i] * GaussianDistortion(plan.bits[i]);
  }
  EXPECT_DOUBLE_EQ(plan.expected_error, expected);
  // No bit moved from one component to another lowers the error.
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      if (i == j || plan.bits[i] == 0) continue;
      const double lost =
          variances[i] * (GaussianDistortion(plan.bits[i] - 1) - GaussianDistortion(plan.bits[i]));
      const double won =
          variances[j] * (GaussianDistortion(plan.bits[j]) - GaussianDistortion(plan.bits[j] + 1));
      EXPECT_GE(lost, won * (1 - 1e-9));
    }
  }
}

TEST(PlanBits, GivesAtMostEightBits) {
  const BitPlan plan = PlanBits({1.0f, 1.0f}, 100);
  EXPECT_EQ(plan.bits, (std::vector<uint8_t>{8, 8}));
}

class PrincipalCodeTest : public testing::TestWithParam<double> {
 protected:
  const PrincipalCode code_ = MakeCode();
  const BitPlan plan_ = PlanBits(code_.variances, GetParam());
};

TEST_P(PrincipalCodeTest, ErrorsAreTheReferencesAndBytesTheBudgets) {
  const std::vector<float> x = Columns(CorrelatedRows(code_.dim, kTokens, 3), code_.dim);
  const std::vector<std::byte> bytes = Encode(code_, plan_, x);
  const std::vector<float> decoded = Decode(code_, plan_, bytes);
  const Reference reference(code_, plan_, x), again(code_, plan_, decoded);
  const int64_t n_escapes = CountEscapes(plan_, bytes);
  EXPECT_LE(n_escapes, 4);
  EXPECT_EQ(bytes.size(), plan_.fixed_bytes + n_escapes * plan_.escape_bytes);
  EXPECT_LE(plan_.fixed_bytes * 8.0 / kTokens / code_.dim, GetParam() + 3.0 / code_.dim);
  double total = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < code_.dim; ++i) {
      const double y = reference.y[i * kTokens + t], d = again.y[i * kTokens + t] - y;
      error += d * d;
      size += y * y;
    }
    // The matrices are rounded to bf16, which the round trip sees beside the quantizer.
    EXPECT_LE(std::sqrt(error), 1.05 * std::sqrt(reference.least[t]) + 0.004 * std::sqrt(size))
        << t;
    total += reference.least[t];
  }
  EXPECT_NEAR(total / kTokens / plan_.expected_error, 1, 0.5);
}

// Reads the documented layout with nothing of the decoder.
TEST_P(PrincipalCodeTest, BytesAreLaidOutAsDocumented) {
  const std::vector<float> x = Columns(CorrelatedRows(code_.dim, kTokens, 4), code_.dim);
  const std::vector<std::byte> bytes = Encode(code_, plan_, x);
  const std::vector<float> decoded = Decode(code_, plan_, bytes);
  const auto bit = [&](int64_t i) { return static_cast<int>(bytes[i / 8] >> (i % 8)) & 1; };
  const auto read = [&](int64_t at, int n) {
    int value = 0;
    for (int b = 0; b < n; ++b) value |= bit(at + b) << b;
    return value;
  };
  const int64_t gains = (plan_.fixed_bytes - 24) * 8, escapes = gains + 128;
  for (int64_t t = 0; t < kTokens; ++t) {
    if (bit(escapes + t) != 0) continue;
    std::vector<double> y(code_.dim);
    int64_t at = 0;
    for (int64_t i = 0; i < plan_.n_coded; ++i) {
      const int bits = plan_.bits[i];
      y[i] = CodebookOf(plan_.density, bits).levels[read(at + t * bits, bits)] *
             kGains[read(gains + 2 * t, 2)] * std::sqrt(static_cast<double>(code_.variances[i]));
      at += bits * kTokens;
    }
    for (int64_t j = 0; j < code_.dim; ++j) {
      double sum = code_.mean[j];
      for (int64_t i = 0; i < code_.dim; ++i)
        sum += Element(code_.decode, j * code_.dim + i) * y[i];
      ASSERT_NEAR(decoded[j * kTokens + t], sum, 1e-4 * (1 + std::abs(sum))) << t << " " << j;
    }
  }
}

TEST_P(PrincipalCodeTest, VectorsFarOutsideEscape) {
  std::vector<float> x = Columns(CorrelatedRows(code_.dim, kTokens, 5), code_.dim);
  for (int64_t j = 0; j < code_.dim; ++j) x[j * kTokens + 7] = j % 2 == 0 ? 300.0f : -200.0f;
  const std::vector<std::byte> bytes = Encode(code_, plan_, x);
  EXPECT_GE(CountEscapes(plan_, bytes), 1);
  const std::vector<float> decoded = Decode(code_, plan_, bytes);
  for (int64_t j = 0; j < code_.dim; ++j) {
    EXPECT_NEAR(decoded[j * kTokens + 7], x[j * kTokens + 7], 310.0 / 127) << j;
  }
}

TEST_P(PrincipalCodeTest, AllVectorsMayEscape) {
  std::vector<float> x(code_.dim * kTokens);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 977) - 400.0f;
  const std::vector<std::byte> bytes = Encode(code_, plan_, x);
  EXPECT_EQ(CountEscapes(plan_, bytes), kTokens);
  EXPECT_EQ(bytes.size(), plan_.max_bytes());
  const std::vector<float> decoded = Decode(code_, plan_, bytes);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(decoded[i], x[i], 600.0 / 127);
}

TEST_P(PrincipalCodeTest, NumbersThatAreNotFiniteEscapeAndStayVisible) {
  const std::vector<float> good = Columns(CorrelatedRows(code_.dim, kTokens, 6), code_.dim);
  std::vector<float> x = good;
  x[3 * kTokens + 1] = std::numeric_limits<float>::quiet_NaN();
  x[40 * kTokens + 2] = std::numeric_limits<float>::infinity();
  x[5 * kTokens + 4] = 1e38f;
  const std::vector<std::byte> bytes = Encode(code_, plan_, x);
  const std::vector<float> decoded = Decode(code_, plan_, bytes);
  EXPECT_TRUE(std::isnan(decoded[3 * kTokens + 1]));
  EXPECT_TRUE(std::isnan(decoded[40 * kTokens + 2]));
  EXPECT_TRUE(std::isfinite(decoded[40 * kTokens + 1]));  // another 32 numbers
  EXPECT_NEAR(decoded[5 * kTokens + 4] / x[5 * kTokens + 4], 1, 1e-2);
  // The other vectors are what they are without these.
  const std::vector<float> alone = Decode(code_, plan_, Encode(code_, plan_, good));
  for (int64_t j = 0; j < code_.dim; ++j) {
    EXPECT_EQ(decoded[j * kTokens + 9], alone[j * kTokens + 9]);
  }
}

TEST_P(PrincipalCodeTest, BytesOfAnotherSizeAreRefused) {
  const std::vector<float> x = Columns(CorrelatedRows(code_.dim, kTokens, 7), code_.dim);
  std::vector<std::byte> bytes = Encode(code_, plan_, x);
  PrincipalScratch scratch;
  std::vector<float> out(x.size(), 5.0f);
  for (size_t size :
       {size_t{0}, size_t{1}, static_cast<size_t>(plan_.fixed_bytes) - 1, bytes.size() - 1}) {
    const absl::Span<const std::byte> cut(bytes.data(), size);
    EXPECT_EQ(DecodeVectors(code_, plan_, cut, scratch, out.data()).code(),
              absl::StatusCode::kInvalidArgument);
  }
  bytes.push_back({});
  EXPECT_FALSE(DecodeVectors(code_, plan_, bytes, scratch, out.data()).ok());
  bytes.pop_back();
  bytes[plan_.fixed_bytes - 1] ^= std::byte{0x80};  // says that another vector escapes, or none
  EXPECT_FALSE(DecodeVectors(code_, plan_, bytes, scratch, out.data()).ok());
  EXPECT_EQ(out[0], 5.0f);
}

TEST_P(PrincipalCodeTest, AnyBytesOfTheRightSizeDecode) {
  std::mt19937 rng(11);
  PrincipalScratch scratch;
  std::vector<float> out(code_.dim * kTokens);
  for (int run = 0; run < 50; ++run) {
    std::vector<std::byte> bytes(plan_.fixed_bytes);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    bytes.resize(bytes.size() + CountEscapes(plan_, bytes) * plan_.escape_bytes, std::byte{0x7f});
    EXPECT_TRUE(DecodeVectors(code_, plan_, bytes, scratch, out.data()).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Bits, PrincipalCodeTest, testing::Values(1.5, 2.45, 5.0, 8.0));

TEST(PrincipalCode, EqualVectorsDecodeToTheMean) {
  ThreadPool pool(1);
  MomentsScratch scratch;
  Moments x(kGroup.dim());
  const std::vector<float> rows(100 * kGroup.dim(), 2.5f);
  x.Add(rows.data(), 100, pool, scratch);
  const std::vector<Moments> queries(kGroup.n_heads, Moments(kGroup.key_dim));
  const PrincipalCode code = *FindPrincipalCode(kGroup, x, queries);
  const BitPlan plan = PlanBits(code.variances, 2.45);
  EXPECT_EQ(plan.n_coded, 0);
  std::vector<float> page(kGroup.dim() * kTokens, 2.5f);
  page[5] = 4.0f;  // token 5 differs, and there is no component for that
  const std::vector<std::byte> bytes = Encode(code, plan, page);
  EXPECT_EQ(CountEscapes(plan, bytes), 1);
  const std::vector<float> decoded = Decode(code, plan, bytes);
  for (size_t i = 0; i < page.size(); ++i) EXPECT_NEAR(decoded[i], page[i], 0.01) << i;
}

TEST(EncodeComponents, TakesTheNearestLevelUnderTheBestGain) {
  const PrincipalCode code = MakeCode();
  const std::vector<float> x = Columns(CorrelatedRows(code.dim, kTokens, 9), code.dim);
  PrincipalScratch scratch;
  CodedComponents coded{{4, 4, 4, 4, 2, 2, 2, 1, 1, 1}, {}, {}};
  EncodeComponents(code, x.data(), scratch, coded);
  ASSERT_EQ(coded.indices.size(), 10u * kTokens);
  const auto error = [&](int64_t i, int64_t t, int gain, size_t index) {
    const double scale = kGains[gain] * std::sqrt(code.variances[i]);
    const double level = CodebookOf(Density::kGaussian, coded.bits[i]).levels[index];
    return std::abs(scratch.components[i * kTokens + t] - scale * level);
  };
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<double> sums(4);
    for (int gain = 0; gain < 4; ++gain) {
      for (int64_t i = 0; i < 10; ++i) {
        double least = 1e30;
        for (size_t index = 0; index < size_t{1} << coded.bits[i]; ++index) {
          least = std::min(least, error(i, t, gain, index));
        }
        sums[gain] += least * least;
        if (gain == coded.gains[t]) {
          EXPECT_NEAR(error(i, t, gain, coded.indices[i * kTokens + t]), least, 1e-5);
        }
      }
    }
    EXPECT_NEAR(sums[coded.gains[t]], *std::min_element(sums.begin(), sums.end()), 1e-4);
  }
}

TEST(FindPrincipalCode, TakesKeysWithoutValuesAndValuesWithoutKeys) {
  ThreadPool pool(1);
  MomentsScratch scratch;
  Moments x(16), query(16);
  x.Add(CorrelatedRows(16, 2000, 1).data(), 2000, pool, scratch);
  query.Add(CorrelatedRows(16, 500, 2).data(), 500, pool, scratch);
  const auto values = FindPrincipalCode({1, 0, 16}, x, {});
  ASSERT_TRUE(values.ok()) << values.status();
  double sum = 0;
  for (const float v : values->variances) sum += v;
  EXPECT_NEAR(sum, 1, 1e-3);  // relative to the values' variance
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      double product = 0;  // of encode and decode
      for (int64_t k = 0; k < 16; ++k) {
        product += Element(values->encode, i * 16 + k) * Element(values->decode, k * 16 + j);
      }
      EXPECT_NEAR(product, i == j, 0.02);
    }
  }
  const auto keys = FindPrincipalCode({1, 16, 0}, x, {&query, 1});
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->dim, 16);
  EXPECT_NE(keys->encode, values->encode);  // queries weigh a key's directions
}

}  // namespace
}  // namespace lowkey
