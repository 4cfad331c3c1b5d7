#include "engine/attention/atp/calibrated/token_rest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/lowrank/codebook.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kDim = 64;

// Returns a code of `dim` components whose deviations fall from 4 on.
PrincipalCode FallingCode(int64_t dim) {
  PrincipalCode code;
  code.dim = dim;
  for (int64_t j = 0; j < dim; ++j) code.variances.push_back(16.0f / static_cast<float>(1 + j));
  return code;
}

constexpr LevelBands kKeyBands{{12, 16, 16}}, kValueBands{{8, 16, 0}};

TokenRest::Half Keys(const PrincipalCode& code) {
  return TokenRest::PlanHalf(code.variances, kKeyBands, TokenRest::KeyBytes(code.dim));
}

TokenRest::Half Values(const PrincipalCode& code) {
  return TokenRest::PlanHalf(code.variances, kValueBands, TokenRest::ValueBytes(code.dim));
}

// Returns numbers [n][64] with the variances that a half expects, times `factor`.
std::vector<float> Numbers(const PrincipalCode& code, const TokenRest::Half& half, float factor) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> out;
  for (int64_t j = 0; j < half.n(); ++j) {
    const float deviation = factor * std::sqrt(code.variances[half.first + j]);
    for (int64_t t = 0; t < kCodedTokens; ++t) out.push_back(deviation * normal(rng));
  }
  return out;
}

struct Decoded {
  std::vector<std::byte> bytes;
  std::vector<double> numbers;  // [n][64]
};

Decoded EncodeAndRead(const PrincipalCode& code, const TokenRest::Half& half,
                      const std::vector<float>& numbers) {
  Decoded out;
  const int64_t token_bytes = half.bytes() + 3;
  out.bytes.assign(kCodedTokens * token_bytes, std::byte{0x5a});
  const std::vector<uint8_t> parts(half.first * kCodedTokens);
  TokenRest::Encode(code, half, parts, numbers.data(), out.bytes.data(), token_bytes);
  out.numbers.resize(half.n() * kCodedTokens);
  // The levels' unit is that of the code of 4 bits, whose largest level is 127.
  std::vector<int8_t> levels(half.n_padded() + 4);
  PrincipalCode square = code;
  square.decode.assign(code.dim * code.dim, 0);
  for (int64_t j = 0; j < code.dim; ++j) square.decode[j * code.dim + j] = 0x3f80;  // 1
  TokenRest rest(1);
  rest.AddKeys(square, kKeyBands, code.dim);
  rest.AddValues(square, kValueBands, code.dim);
  const bool is_key = half.bytes() == TokenRest::KeyBytes(code.dim);
  const TokenRest::Half& with_rows = is_key ? rest.keys(0, 0) : rest.values(0, 0);
  for (int64_t t = 0; t < kCodedTokens; ++t) {
    const float scale = TokenRest::Read(half, out.bytes.data() + t * token_bytes, levels.data());
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(out.bytes[(t + 1) * token_bytes - 1 - i], std::byte{0x5a}) << "wrote past a token";
    }
    for (int64_t j = 0; j < half.n(); ++j) {
      const float* row = with_rows.rows.data() + j * with_rows.width;
      out.numbers[j * kCodedTokens + t] = double{scale} * levels[j] * row[half.first + j];
    }
  }
  return out;
}

double RelativeError(const std::vector<float>& numbers, const Decoded& decoded) {
  double error = 0, sum = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    error += std::pow(numbers[i] - decoded.numbers[i], 2);
    sum += std::pow(double{numbers[i]}, 2);
  }
  return error / sum;
}

TEST(TokenRest, GivesBitsWhereVarianceIs) {
  const PrincipalCode code = FallingCode(kDim);
  for (const TokenRest::Half& half : {Keys(code), Values(code)}) {
    int64_t n_bytes = 1;
    int least = 8;
    const auto add = [&](const TokenRest::Group& group, int index_bits) {
      n_bytes += group.bits;
      EXPECT_LE(index_bits + group.bits, least + 1) << group.first;  // a bit more after a band
      least = std::min(least, index_bits + group.bits);
    };
    for (const TokenRest::Group& group : half.refined) {
      add(group, LevelBands::kBits[group.band]);
    }
    for (const TokenRest::Group& group : half.numbers) add(group, 0);
    EXPECT_EQ(n_bytes, half.bytes());
    EXPECT_GT(half.numbers.size(), 0u);
  }
}

TEST(TokenRest, CoversEveryComponentOfAnyHeadOnce) {
  for (int64_t dim = 2; dim <= 256; dim += 2) {
    const PrincipalCode code = FallingCode(dim);
    for (const LevelBands& bands : {LevelBands{{8, 0, 0}}, LevelBands{{dim / 16 * 4, 8, 0}}}) {
      for (const int64_t n_bytes : {TokenRest::KeyBytes(dim), TokenRest::ValueBytes(dim)}) {
        const TokenRest::Half half = TokenRest::PlanHalf(code.variances, bands, n_bytes);
        int64_t next = 0, used = 1;
        for (const TokenRest::Group& group : half.refined) {
          EXPECT_EQ(group.first, next) << dim;
          next = group.end(), used += group.bits;
        }
        EXPECT_EQ(next, half.first) << dim;
        EXPECT_EQ(next, std::min(bands.n_components(), dim)) << dim;
        next = 0;
        for (const TokenRest::Group& group : half.numbers) {
          EXPECT_EQ(group.first, next) << dim;
          EXPECT_EQ(group.first % TokenRest::Group::kMost, 0) << dim;
          EXPECT_GT(group.bits, 0) << dim;
          next = group.end(), used += group.bits;
        }
        EXPECT_LE(half.first + half.n(), dim) << dim;
        EXPECT_LE(used, n_bytes) << dim;
      }
    }
  }
}

TEST(TokenRest, ReadsNumbersOfAnySizeWithTheSameRelativeError) {
  const PrincipalCode code = FallingCode(kDim);
  for (const TokenRest::Half& half : {Keys(code), Values(code)}) {
    for (const float factor : {1e-3f, 0.3f, 1.0f, 7.0f, 1000.0f}) {
      const std::vector<float> numbers = Numbers(code, half, factor);
      EXPECT_LT(RelativeError(numbers, EncodeAndRead(code, half, numbers)), 0.11) << factor;
    }
  }
}

TEST(TokenRest, EachBitMoreOfALevelHalvesItsError) {
  const float unit =
      CodebookOf(Density::kGaussian, 4).levels.back() / LevelBook::kMost * TokenRest::kLeadUnit;
  for (int band = 0; band < LevelBands::kBands; ++band) {
    const Codebook book = CodebookOf(Density::kGaussian, LevelBands::kBits[band]);
    std::mt19937 rng(7);
    std::normal_distribution<float> normal;
    TokenRest::Half half;
    double errors[5] = {};
    for (int i = 0; i < 4000; ++i) {
      const float x = normal(rng);
      const auto level =
          static_cast<uint8_t>(std::upper_bound(book.thresholds.begin(), book.thresholds.end(), x) -
                               book.thresholds.begin());
      for (int bits = 0; bits <= 4; ++bits) {
        const TokenRest::Group group{0, 1, band, bits};
        half.refined = {group};
        const uint8_t part = bits > 0 ? TokenRest::PartOf(x, group, level) : uint8_t{0};
        std::byte kept[5] = {};
        kept[1] = std::byte{part};
        auto code = static_cast<int8_t>(level);
        TokenRest::ReadLead(half, kept, &code);
        errors[bits] += std::pow(double{x} - double{unit} * code, 2);
      }
    }
    for (int bits = 1; bits <= 2; ++bits) EXPECT_LT(errors[bits], 0.5 * errors[bits - 1]) << bits;
    EXPECT_LT(errors[3], errors[2]) << band;  // of four bits the levels' unit is nearly as coarse
  }
}

TEST(TokenRest, ReadsGroupsOfAnySizeAndNothingBehindThem) {
  const float unit = CodebookOf(Density::kGaussian, 4).levels.back() / LevelBook::kMost;
  std::mt19937 rng(9);
  for (int band = 0; band < LevelBands::kBands; ++band) {
    for (int bits = 0; bits <= 4; ++bits) {
      for (int64_t n = 1; n <= TokenRest::Group::kMost; ++n) {
        const int index_bits = LevelBands::kBits[band];
        TokenRest::Half half;
        half.refined = {{2, n, band, bits}};
        uint64_t parts = rng() | uint64_t{rng()} << 32;
        std::byte rest[9] = {};
        for (int i = 0; i < bits; ++i) rest[1 + i] = static_cast<std::byte>(parts >> (8 * i));
        std::vector<int8_t> codes(14, -7), want = codes;
        for (int64_t i = 2; i < 2 + n; ++i, parts >>= bits) {
          const int cell = static_cast<int>(rng() % (1u << index_bits));
          const auto part = static_cast<size_t>(parts & ((1u << bits) - 1));
          const float level = bits == 0 ? CodebookOf(Density::kGaussian, index_bits).levels[cell]
                                        : GaussianCellCodebook(index_bits, cell, bits).levels[part];
          codes[i] = static_cast<int8_t>(cell);
          want[i] = static_cast<int8_t>(
              std::clamp<long>(std::lround(level / (unit * TokenRest::kLeadUnit)), -127, 127));
        }
        TokenRest::ReadLead(half, rest, codes.data());
        EXPECT_EQ(codes, want) << band << ", " << bits << ", " << n;
      }
    }
  }
}

TEST(TokenRest, AVectorHasAScaleOfItsOwn) {
  const PrincipalCode code = FallingCode(kDim);
  const TokenRest::Half half = Keys(code);
  std::vector<float> numbers = Numbers(code, half, 1);
  const Decoded before = EncodeAndRead(code, half, numbers);
  for (int64_t j = 0; j < half.n(); ++j) numbers[j * kCodedTokens + 9] *= 100;
  const Decoded after = EncodeAndRead(code, half, numbers);
  EXPECT_LT(RelativeError(numbers, after), 0.11);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i % kCodedTokens == 9) continue;
    EXPECT_EQ(after.numbers[i], before.numbers[i]);
  }
}

TEST(TokenRest, WhatIsNotFiniteReadsAsFinite) {
  PrincipalCode code = FallingCode(kDim);
  code.variances.back() = 0;
  const TokenRest::Half half = Values(code);
  std::vector<float> numbers = Numbers(code, half, 1);
  numbers[3] = std::nanf("");
  numbers[kCodedTokens + 4] = std::numeric_limits<float>::infinity();
  numbers[5] = 1e30f;
  for (int64_t j = 0; j < half.n(); ++j) numbers[j * kCodedTokens + 6] = 0;
  for (const double x : EncodeAndRead(code, half, numbers).numbers) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace lowkey
