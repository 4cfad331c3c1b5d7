#include "engine/attention/atp/calibrated/token_rest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/lowrank/laplacian.h"
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
  const std::vector<uint8_t> parts(half.n_refined() * kCodedTokens);
  TokenRest::Encode(code, half, parts.data(), numbers.data(), out.bytes.data(), token_bytes);
  out.numbers.resize(half.n() * kCodedTokens);
  // The levels' unit is that of the code of 4 bits, whose largest level is 127.
  std::vector<int8_t> levels(half.n_padded() + 4);
  const AttentionGeometry g{1, 1, 1, code.dim, std::nullopt, StorageType::kFloat32};
  PrincipalCode square = code;
  square.decode.assign(code.dim * code.dim, 0);
  for (int64_t j = 0; j < code.dim; ++j) square.decode[j * code.dim + j] = 0x3f80;  // 1
  const TokenRest rest(g, {square}, {square}, half.first, half.first);
  const bool is_key = half.bands == TokenRest::KeysOf(half.first, code.dim).bands;
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

TEST(TokenRest, HoldsAsManyBytesAsItsBandsSay) {
  const TokenRest::Half keys = TokenRest::KeysOf(24, kDim), values = TokenRest::ValuesOf(16, kDim);
  EXPECT_EQ(keys.n_refined(), 2 + 4 + 8);
  EXPECT_EQ(keys.n(), 40);
  EXPECT_EQ(keys.bytes(), 1 + 2 * 4 / 8 + 4 * 2 / 8 + 8 / 8 + 24 * 3 / 8 + 16 * 2 / 8);
  EXPECT_EQ(values.n_refined(), 8);
  EXPECT_EQ(values.n(), 48);
  EXPECT_EQ(values.bytes(), 1 + 8 / 8 + 24 * 4 / 8 + 24 * 3 / 8);
}

TEST(TokenRest, CoversEveryComponentOfAnyHead) {
  for (int64_t dim = 2; dim <= 256; dim += 2) {
    for (int64_t n_index : {int64_t{4}, int64_t{8}, (3 * dim / 8 + 3) / 4 * 4}) {
      for (const TokenRest::Half& half :
           {TokenRest::KeysOf(n_index, dim), TokenRest::ValuesOf(n_index, dim)}) {
        EXPECT_EQ(half.n(), std::max<int64_t>(0, dim - n_index)) << dim;
        EXPECT_LE(half.n_refined(), std::min(n_index, dim)) << dim;
        int64_t first = 0;
        for (const TokenRest::Band& band : half.bands) {
          EXPECT_GE(band.n, 0) << dim;
          // Levels are read by fours, and never beyond n_padded.
          EXPECT_EQ(band.n > 0 ? first % 4 : 0, 0) << dim;
          first += band.n;
          EXPECT_EQ(band.bits == 3 ? band.n % 8 : 0, 0) << dim;
          EXPECT_EQ(band.bits == 4 ? band.n % 2 : 0, 0) << dim;
        }
      }
    }
  }
}

TEST(TokenRest, ReadsNumbersOfAnySizeWithTheSameRelativeError) {
  const PrincipalCode code = FallingCode(kDim);
  for (const TokenRest::Half& half : {TokenRest::KeysOf(24, kDim), TokenRest::ValuesOf(16, kDim)}) {
    for (const float factor : {1e-3f, 0.3f, 1.0f, 7.0f, 1000.0f}) {
      const std::vector<float> numbers = Numbers(code, half, factor);
      EXPECT_LT(RelativeError(numbers, EncodeAndRead(code, half, numbers)), 0.11) << factor;
    }
  }
}

TEST(TokenRest, EachBitMoreOfALevelHalvesItsError) {
  const Codebook book = LaplacianCodebook(4);
  const float unit = book.levels.back() / 127;
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
      half.refined[0] = {bits > 0 ? 1 : 0, bits};
      const std::byte kept[] = {std::byte{0}, std::byte{TokenRest::PartOf(x, level, bits)}};
      auto code = static_cast<int8_t>(level);
      TokenRest::ReadLead(half, kept, 1, &code);
      errors[bits] += std::pow(double{x} - double{unit} * code, 2);
    }
  }
  for (int bits = 1; bits <= 3; ++bits) EXPECT_LT(errors[bits], 0.4 * errors[bits - 1]) << bits;
  EXPECT_LT(errors[4], errors[3]);  // the levels' unit is nearly as coarse
}

TEST(TokenRest, AVectorHasAScaleOfItsOwn) {
  const PrincipalCode code = FallingCode(kDim);
  const TokenRest::Half half = TokenRest::KeysOf(24, kDim);
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
  const TokenRest::Half half = TokenRest::ValuesOf(16, kDim);
  std::vector<float> numbers = Numbers(code, half, 1);
  numbers[3] = std::nanf("");
  numbers[kCodedTokens + 4] = std::numeric_limits<float>::infinity();
  numbers[5] = 1e30f;
  for (int64_t j = 0; j < half.n(); ++j) numbers[j * kCodedTokens + 6] = 0;
  for (const double x : EncodeAndRead(code, half, numbers).numbers) EXPECT_TRUE(std::isfinite(x));
}

}  // namespace
}  // namespace lowkey
