#include "engine/attention/standard/prefix_codes.h"

#include <cmath>
#include <random>

#include "engine/base/dtype.h"
#include "engine/lowrank/moments.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

// One page of a layer in the middle, with keys that are rotated from position 128 on.
class PrefixCodesTest : public ::testing::TestWithParam<StorageType> {
 protected:
  static constexpr int64_t kPage = 2, kLayer = 1, kGroup = 1;

  PrefixCodesTest() : geometry_{3, 8, 4, 20, std::nullopt, GetParam()} {
    geometry_.score_dim = 12;
    codes_.group = {2, geometry_.key_dim(), geometry_.head_dim};
    codes_.n_layers = 3;
    codes_.n_groups = 2;
    codes_.inverse_frequencies = {1, 0.5, 0.2, 0.1, 0.01, 0.001};
    plain_ = Plain(kPageTokens, 9);
    ThreadPool pool(1);
    MomentsScratch scratch;
    for (int64_t i = 0; i < 6; ++i) {
      Moments x(codes_.group.dim());
      x.Add(Plain(2000, 1).data(), 2000, pool, scratch);
      const std::vector<Moments> queries(2, Moments(geometry_.key_dim()));
      codes_.codes.push_back(*FindPrincipalCode(codes_.group, x, queries));
    }
    page_.assign(PageBytes(geometry_), std::byte{0x55});
    WritePage();
  }

  // Rows [n][k_1 k_2 v_1 v_2] before RoPE.
  std::vector<float> Plain(int64_t n, uint32_t seed) const {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    std::vector<float> rows(n * codes_.group.dim());
    for (float& x : rows) x = 2 + normal(rng);
    return rows;
  }

  float Rotated(int64_t token, int64_t head, int64_t j) const {
    const float* key = &plain_[token * codes_.group.dim() + head * geometry_.key_dim()];
    const int64_t half = geometry_.key_dim() / 2;
    const double angle =
        static_cast<double>(kPage * kPageTokens + token) * codes_.inverse_frequencies[j % half];
    const double a = key[j % half], b = key[j % half + half];
    return static_cast<float>(j < half ? a * std::cos(angle) - b * std::sin(angle)
                                       : b * std::cos(angle) + a * std::sin(angle));
  }
  float Value(int64_t token, int64_t head, int64_t j) const {
    return plain_[token * codes_.group.dim() + 2 * geometry_.key_dim() + head * geometry_.head_dim +
                  j];
  }

  KvTile Tile(int64_t head) { return TileOf(geometry_, page_.data(), kLayer, 2 * kGroup + head); }
  void Put(std::byte* to, int64_t i, float x) {
    if (GetParam() == StorageType::kFloat32) {
      reinterpret_cast<float*>(to)[i] = x;
    } else {
      reinterpret_cast<uint16_t*>(to)[i] = ToBFloat16(x).bits;
    }
  }
  void WritePage() {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t t = 0; t < kPageTokens; ++t) {
        for (int64_t j = 0; j < geometry_.key_dim(); ++j) {
          Put(Tile(h).keys, j * kPageTokens + t, Rotated(t, h, j));
        }
        for (int64_t j = 0; j < geometry_.head_dim; ++j) {
          Put(Tile(h).values, t * geometry_.head_dim_padded() + j, Value(t, h, j));
        }
      }
    }
  }

  AttentionGeometry geometry_;
  PrefixCodes codes_;
  std::vector<float> plain_;
  alignas(64) std::vector<std::byte> page_;
};

TEST_P(PrefixCodesTest, APageComesBackRotatedAndNothingElseIsTouched) {
  ASSERT_TRUE(codes_.CheckFits(geometry_).ok()) << codes_.CheckFits(geometry_);
  const PrefixBits bits = PlanPrefixBits(codes_, 8);
  const PageRotation rotation(codes_, kPage);
  const CodedShare share{geometry_, codes_, bits, rotation, page_.data(), kLayer, kGroup};
  PageCodeScratch scratch;
  std::vector<std::byte> code;
  EncodeShare(share, scratch, code);

  std::vector<std::byte> fresh(page_.size(), std::byte{0x77});
  const CodedShare to{geometry_, codes_, bits, rotation, fresh.data(), kLayer, kGroup};
  ASSERT_TRUE(DecodeShare(to, code, scratch).ok());
  page_ = fresh;
  const float tolerance = 0.1f;
  for (int64_t h = 0; h < 2; ++h) {
    std::vector<float> keys(geometry_.key_dim() * kPageTokens);
    std::vector<float> values(geometry_.head_dim * kPageTokens);
    const int64_t ld = geometry_.head_dim;
    std::vector<float> token_keys(kPageTokens * ld);
    ReadKv(geometry_, Tile(h), {}, token_keys.data(), values.data(), ld);
    for (int64_t t = 0; t < kPageTokens; ++t) {
      for (int64_t j = 0; j < geometry_.key_dim(); ++j) {
        ASSERT_NEAR(token_keys[t * ld + j], Rotated(t, h, j), tolerance) << h << " " << t;
      }
      for (int64_t j = 0; j < geometry_.head_dim; ++j) {
        ASSERT_NEAR(values[t * ld + j], Value(t, h, j), tolerance) << h << " " << t;
      }
    }
  }
  // The tiles of other layers and heads.
  const auto begin = reinterpret_cast<std::byte*>(Tile(0).keys) - page_.data();
  const auto end = TileOf(geometry_, page_.data(), kLayer + 1, 0).keys - page_.data();
  for (int64_t i = 0; i < static_cast<int64_t>(page_.size()); ++i) {
    if (i < begin || i >= end) {
      ASSERT_EQ(page_[i], std::byte{0x77}) << i;
    }
  }
  // What a fresh page held beyond a value is overwritten.
  const int64_t element = StorageBytes(GetParam());
  for (int64_t j = geometry_.head_dim * element; j < geometry_.head_dim_padded() * element; ++j) {
    EXPECT_EQ(Tile(1).values[j], std::byte{0});
  }
  code.pop_back();
  EXPECT_FALSE(DecodeShare(to, code, scratch).ok());
}

INSTANTIATE_TEST_SUITE_P(Types, PrefixCodesTest,
                         ::testing::Values(StorageType::kFloat32, StorageType::kBFloat16),
                         [](const auto& info) {
                           return info.param == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

}  // namespace
}  // namespace lowkey
