#include "engine/attention/pages/quantized_kv.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/base/dtype.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One closed page of one layer and KV head, and what it gives back.
class ClosedPage {
 public:
  ClosedPage(int64_t head_dim, CacheStorage storage)
      : g_{1, 1, 1, head_dim, std::nullopt, StorageType::kFloat32},
        storage_(storage),
        keys_(kPageTokens * head_dim),
        values_(kPageTokens * g_.head_dim_padded()),
        cache_(*Cache::Create(1 << 20, PageBytes(g_))),
        slab_(*cache_->AllocateSlab(QuantizedPageBytes(g_, storage))) {}

  // The exact page: key channel j of token t, value channel j of token t.
  float& key(int64_t t, int64_t j) { return keys_[j * kPageTokens + t]; }
  float& value(int64_t t, int64_t j) { return values_[t * g_.head_dim_padded() + j]; }

  void Close() {
    QuantizeTile(
        g_, storage_,
        {reinterpret_cast<std::byte*>(keys_.data()), reinterpret_cast<std::byte*>(values_.data())},
        0, 0, *slab_);
    tile_ = QuantizedTileOf(g_, storage_, *slab_, 0, 0);
    key_codes_ = Codes(tile_.keys, kPageTokens * g_.head_dim);
    value_codes_ = Codes(tile_.values, kPageTokens * g_.head_dim_padded());
  }

  float ReadKey(int64_t t, int64_t j) const {
    const int64_t group = t / kGroup, at = group * DotWidth(g_) + j;
    return Number(tile_.key_scales[at], tile_.key_middles[at],
                  key_codes_[(group * g_.head_dim + j) * kGroup + t % kGroup]);
  }
  float ReadValue(int64_t t, int64_t j) const {
    const int64_t at = j / kGroup * kPageTokens + t;
    return Number(tile_.value_scales[at], tile_.value_middles[at],
                  value_codes_[t * g_.head_dim_padded() + j]);
  }
  float KeyScale(int64_t t, int64_t j) const {
    return ToFloat(BFloat16{tile_.key_scales[t / kGroup * DotWidth(g_) + j]});
  }
  float ValueScale(int64_t t, int64_t j) const {
    return ToFloat(BFloat16{tile_.value_scales[j / kGroup * kPageTokens + t]});
  }

 private:
  static float Number(uint16_t scale, uint16_t middle, int8_t code) {
    return ToFloat(BFloat16{middle}) + ToFloat(BFloat16{scale}) * static_cast<float>(code);
  }
  std::vector<int8_t> Codes(const std::byte* at, int64_t n) const {
    std::vector<int8_t> codes(n);
    if (const int bits = CodeBits(storage_); bits < 8) {
      Kernels().unpack_codes(bits, reinterpret_cast<const uint8_t*>(at), codes.data(), n);
    } else {
      std::copy_n(reinterpret_cast<const int8_t*>(at), n, codes.data());
    }
    return codes;
  }

  AttentionGeometry g_;
  CacheStorage storage_;
  std::vector<float> keys_, values_;
  std::unique_ptr<Cache> cache_;
  std::shared_ptr<Slab> slab_;
  QuantizedTile tile_;
  std::vector<int8_t> key_codes_, value_codes_;
};

class QuantizedKvTest : public testing::TestWithParam<CacheStorage> {
 protected:
  float n_steps() const { return static_cast<float>((1 << CodeBits(GetParam())) - 1); }
};

INSTANTIATE_TEST_SUITE_P(Storages, QuantizedKvTest,
                         testing::Values(CacheStorage::kInt8, CacheStorage::kInt4,
                                         CacheStorage::kInt3, CacheStorage::kInt2),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(QuantizedKvTest, EveryNumberIsWithinHalfAStep) {
  for (int64_t head_dim : {8, 20, 64, 80}) {
    ClosedPage page(head_dim, GetParam());
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<float> keys, values;
    for (int64_t t = 0; t < kPageTokens; ++t) {
      for (int64_t j = 0; j < head_dim; ++j) {
        // Channels of a size and around a number of their own, as models have them.
        const float size = std::exp(normal(rng));
        keys.push_back(page.key(t, j) = normal(rng) * size + 10.0f * static_cast<float>(j % 3));
        values.push_back(page.value(t, j) = normal(rng) * size);
      }
    }
    page.Close();
    for (int64_t t = 0; t < kPageTokens; ++t) {
      for (int64_t j = 0; j < head_dim; ++j) {
        const float key = keys[t * head_dim + j], value = values[t * head_dim + j];
        ASSERT_NEAR(page.ReadKey(t, j), key, 0.501f * page.KeyScale(t, j)) << t << ", " << j;
        ASSERT_NEAR(page.ReadValue(t, j), value, 0.501f * page.ValueScale(t, j)) << t << ", " << j;
      }
    }
  }
}

TEST_P(QuantizedKvTest, AStepIsTheSpreadOfThirtyTwoNumbers) {
  ClosedPage page(32, GetParam());
  for (int64_t t = 0; t < kPageTokens; ++t) {
    for (int64_t j = 0; j < 32; ++j) {
      page.key(t, j) = static_cast<float>(t % 2 == 0 ? -j : j) * (t < 32 ? 1.0f : 3.0f);
      page.value(t, j) = static_cast<float>(j % 2 == 0 ? -t : t);
    }
  }
  page.Close();
  for (int64_t t : {0, 31, 32, 63}) {
    for (int64_t j : {0, 1, 31}) {
      const float spread = static_cast<float>(2 * j) * (t < 32 ? 1.0f : 3.0f);
      EXPECT_NEAR(page.KeyScale(t, j), spread / n_steps(), 0.02f * spread / n_steps());
      const auto value_spread = static_cast<float>(2 * t);
      EXPECT_NEAR(page.ValueScale(t, j), value_spread / n_steps(),
                  0.02f * value_spread / n_steps());
    }
  }
}

TEST_P(QuantizedKvTest, EqualNumbersComeBackToTheirBf16) {
  ClosedPage page(8, GetParam());
  for (int64_t t = 0; t < kPageTokens; ++t) {
    for (int64_t j = 0; j < 8; ++j) page.key(t, j) = page.value(t, j) = j == 0 ? 0.0f : 1.0f / 3;
  }
  for (int64_t t = 0; t < kPageTokens; ++t) page.value(t, 0) = 1.0f / 3;
  page.Close();
  EXPECT_EQ(page.ReadKey(5, 0), 0.0f);
  EXPECT_NEAR(page.ReadKey(5, 1), 1.0f / 3, 1e-5f);
  EXPECT_NEAR(page.ReadValue(5, 1), 1.0f / 3, 1e-5f);
}

TEST_P(QuantizedKvTest, WhatIsNotFiniteStaysInItsGroup) {
  for (float odd : {std::nanf(""), kInfinity, -kInfinity, 3e38f}) {
    ClosedPage page(64, GetParam());
    for (int64_t t = 0; t < kPageTokens; ++t) {
      for (int64_t j = 0; j < 64; ++j)
        page.key(t, j) = page.value(t, j) = static_cast<float>(j + t);
    }
    page.key(3, 5) = page.value(3, 5) = odd;
    page.value(3, 6) = page.key(4, 5) = -odd;
    page.Close();
    EXPECT_NEAR(page.ReadKey(40, 5), 45.0f, 0.51f * page.KeyScale(40, 5));
    EXPECT_NEAR(page.ReadKey(3, 6), 9.0f, 0.51f * page.KeyScale(3, 6));
    EXPECT_NEAR(page.ReadValue(3, 40), 43.0f, 0.51f * page.ValueScale(3, 40));
    EXPECT_NEAR(page.ReadValue(4, 5), 9.0f, 0.51f * page.ValueScale(4, 5));
  }
}

TEST_P(QuantizedKvTest, BytesAreCodesAndTwoNumbersForEveryThirtyTwo) {
  const AttentionGeometry g{3, 8, 2, 64, std::nullopt, StorageType::kBFloat16};
  EXPECT_EQ(QuantizedPageBytes(g, GetParam()), 3 * 2 * 64 * 128 * (CodeBits(GetParam()) + 1) / 8);
}

class QuantizedRowTest : public QuantizedKvTest {};

INSTANTIATE_TEST_SUITE_P(Storages, QuantizedRowTest,
                         testing::Values(CacheStorage::kInt8, CacheStorage::kInt4),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST_P(QuantizedRowTest, ARowIsWithinHalfAStep) {
  for (const int64_t n : {32, 64, 96, 128}) {
    std::mt19937 rng(2);
    std::normal_distribution<float> normal;
    std::vector<float> x(n), read(n);
    for (float& number : x) number = 3 + normal(rng);
    std::vector<std::byte> row(QuantizedRowBytes(GetParam(), n));
    EXPECT_EQ(static_cast<int64_t>(row.size()), n * CodeBits(GetParam()) / 8 + 4 * ((n + 31) / 32));
    QuantizeRow(GetParam(), x.data(), n, row.data());
    ReadQuantizedRow(GetParam(), row.data(), n, read.data());
    for (int64_t first = 0; first < n; first += kGroup) {
      const auto begin = x.begin() + first, end = x.begin() + std::min(n, first + kGroup);
      const float range = *std::max_element(begin, end) - *std::min_element(begin, end);
      for (int64_t j = first; j < std::min(n, first + kGroup); ++j) {
        EXPECT_NEAR(read[j], x[j], 0.53f * range / n_steps()) << n << ", " << j;
      }
    }
  }
}

// A channel of large numbers takes nothing from the others.
TEST(QuantizedKeys, EveryChannelHasItsOwnSteps) {
  constexpr int64_t kDim = 32, kLd = 40, kStride = 17;
  std::mt19937 rng(4);
  std::normal_distribution<float> normal;
  std::vector<float> keys(kGroup * kLd);
  const auto size = [](int64_t j) { return j == 7 ? 100.0f : 0.1f * static_cast<float>(j + 1); };
  for (int64_t i = 0; i < kGroup; ++i) {
    for (int64_t j = 0; j < kDim; ++j) keys[i * kLd + j] = 5 + size(j) * normal(rng);
  }
  std::vector<std::byte> codes(kGroup * kStride);
  std::vector<uint16_t> numbers(2 * kDim);
  QuantizeKeys(keys.data(), kLd, kDim, codes.data(), kStride, numbers.data());
  for (int64_t i = 0; i < kGroup; ++i) {
    float read[kDim];
    Kernels().widen_int4(reinterpret_cast<const uint8_t*>(codes.data()) + i * kStride,
                         numbers.data(), numbers.data() + kDim, read, kDim);
    for (int64_t j = 0; j < kDim; ++j) {
      EXPECT_NEAR(read[j], keys[i * kLd + j], 0.501f * ToFloat(BFloat16{numbers[j]})) << i << j;
      EXPECT_LT(ToFloat(BFloat16{numbers[j]}), size(j));
    }
  }
}

}  // namespace
}  // namespace lowkey
