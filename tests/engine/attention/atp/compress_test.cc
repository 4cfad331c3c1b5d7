#include "engine/attention/atp/compress.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

AttentionGeometry Geometry(StorageType type = StorageType::kFloat32) {
  return {2, 4, 2, 20, std::nullopt, type};
}

struct BlockCase {
  AtpBasis basis;
  StorageType type;
  double tolerance;  // of a rebuilt key or value at full rank
};

// A block of 64 tokens, compressed from pages.
class CompressTest : public testing::TestWithParam<BlockCase> {
 protected:
  CompressTest() : rows_(FactorRows(Geometry(GetParam().type), 64, GapAt(5), 1)) {
    const AttentionGeometry& g = rows_.geometry;
    auto cache = Cache::Create(int64_t{1} << 22, PageBytes(g));
    EXPECT_TRUE(cache.ok());
    cache_ = *std::move(cache);
    const Segment all{&sequence_, 0, 64, 0};
    EXPECT_TRUE(TakePages(all, *cache_).ok());
    ThreadPool pool(1);
    for (int64_t layer = 0; layer < g.n_layers; ++layer) {
      const float* q = rows_.row(layer, 0);
      WriteKv(g, {&all, 1}, {layer, nullptr, 0, q, q + 80, q + 120, rows_.ld(), nullptr, 0}, pool);
    }
  }

  PrincipalBlock Compress(int32_t rank, int64_t n_sinks) {
    AtpOptions o;
    o.rank = RankFixed{rank}, o.basis = GetParam().basis, o.block_tokens = 64;
    return Compress(o, n_sinks);
  }

  PrincipalBlock Compress(const AtpOptions& o, int64_t n_sinks) {
    const AttentionGeometry& g = rows_.geometry;
    PrincipalBlock block{ShapeOf(g, o), n_sinks, nullptr, {}, {}};
    EXPECT_TRUE(block.Allocate(g, 0, *cache_).ok());
    for (int64_t layer = 0; layer < g.n_layers; ++layer) {
      for (int64_t head = 0; head < block.shape.n_bases(g); ++head) {
        CompressLayer(g, o, {sequence_.pages}, {layer, head}, workspace_, block);
      }
    }
    return block;
  }

  double At(const std::byte* p, int64_t index) const {
    if (GetParam().type == StorageType::kFloat32) return reinterpret_cast<const float*>(p)[index];
    return ToFloat(BFloat16{reinterpret_cast<const uint16_t*>(p)[index]});
  }

  // Column j of token t's key (or value): mean + U K'.
  double Rebuilt(const PrincipalView& view, int64_t t, int64_t j, const char* what) const {
    const AttentionGeometry& g = rows_.geometry;
    const int64_t r = view.rank, padded = g.head_dim_padded();
    const bool key = std::strcmp(what, "key") == 0;
    const auto principal = [&](int64_t i) {
      return At(key ? view.keys : view.values, i * (key ? DotWidth(g) : padded) + j);
    };
    double x = principal(r);
    for (int64_t i = 0; i < r; ++i) x += At(view.u, i * kPageTokens + t) * principal(i);
    return x;
  }

  AttentionRows rows_;
  std::unique_ptr<Cache> cache_;
  SequenceCache sequence_;
  CompressWorkspace workspace_;
};

INSTANTIATE_TEST_SUITE_P(Bases, CompressTest,
                         testing::Values(BlockCase{AtpBasis::kLayer, StorageType::kFloat32, 1e-5},
                                         BlockCase{AtpBasis::kKv, StorageType::kFloat32, 1e-5},
                                         BlockCase{AtpBasis::kLayer, StorageType::kBFloat16, 0.1},
                                         BlockCase{AtpBasis::kKv, StorageType::kBFloat16, 0.1}),
                         [](const auto& info) {
                           return std::string(NameOf(info.param.basis)) +
                                  (info.param.type == StorageType::kFloat32 ? "_fp32" : "_bf16");
                         });

TEST_P(CompressTest, FullRankRebuildsKeysAndValues) {
  for (int64_t n_sinks : {0, 4}) {
    const PrincipalBlock block = Compress(20, n_sinks);  // eleven factors and the mean
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t head = 0; head < 2; ++head) {
        const PrincipalView view = block.View(rows_.geometry, layer, head);
        for (int64_t t = n_sinks; t < 64; ++t) {
          const float* row = rows_.row(layer, t);
          for (int64_t j = 0; j < 20; ++j) {
            ASSERT_NEAR(Rebuilt(view, t, j, "key"), row[80 + head * 20 + j], GetParam().tolerance);
            ASSERT_NEAR(Rebuilt(view, t, j, "value"), row[120 + head * 20 + j],
                        GetParam().tolerance);
          }
        }
      }
    }
  }
}

TEST_P(CompressTest, SinksHaveNoPartInIt) {
  const PrincipalBlock block = Compress(5, 7);
  for (int64_t head = 0; head < 2; ++head) {
    const PrincipalView view = block.View(rows_.geometry, 1, head);
    for (int64_t r = 0; r < 5; ++r) {
      for (int64_t t = 0; t < 7; ++t) EXPECT_EQ(At(view.u, r * kPageTokens + t), 0.0);
      EXPECT_NE(At(view.u, r * kPageTokens + 7), 0.0);
    }
  }
}

TEST_P(CompressTest, BasisSharedByALayerIsOne) {
  const PrincipalBlock block = Compress(5, 0);
  const bool same = block.View(rows_.geometry, 1, 0).u == block.View(rows_.geometry, 1, 1).u;
  EXPECT_EQ(same, GetParam().basis == AtpBasis::kLayer);
}

TEST_P(CompressTest, TokensThatAreNotNumbersGiveNoBasis) {
  const float nan = std::nanf("");
  const KvTile tile = TileOf(rows_.geometry, sequence_.pages[0], 0, 0);
  const uint16_t half_nan = 0x7fc0;
  if (GetParam().type == StorageType::kFloat32) {
    std::memcpy(tile.keys, &nan, sizeof(nan));
  } else {
    std::memcpy(tile.keys, &half_nan, sizeof(half_nan));
  }
  const PrincipalBlock block = Compress(5, 0);
  const PrincipalView view = block.View(rows_.geometry, 0, 0);
  for (int64_t i = 0; i < 5 * 64; ++i) EXPECT_EQ(At(view.u, i), 0.0);
}

TEST_P(CompressTest, EnergyTakesTheRankThatTheDataHas) {
  AtpOptions o;
  o.basis = GetParam().basis, o.block_tokens = 64;
  o.rank = RankEnergy{0.999999};
  const PrincipalBlock all = Compress(o, 4);
  for (int32_t rank : all.ranks) {
    EXPECT_LE(rank, GetParam().type == StorageType::kFloat32 ? 11 : 40);  // eleven factors
  }
  o.rank = RankEnergy{0.5};
  const PrincipalBlock half = Compress(o, 4);
  EXPECT_LT(half.MeanRank(), all.MeanRank());
  EXPECT_GE(*std::min_element(half.ranks.begin(), half.ranks.end()), 1);
}

TEST_P(CompressTest, EntropyCountsTheFactors) {
  AtpOptions o;
  o.basis = GetParam().basis, o.block_tokens = 64;
  o.rank = RankEntropy{};
  const PrincipalBlock block = Compress(o, 0);
  for (int32_t rank : block.ranks) {
    EXPECT_GE(rank, 2);
    EXPECT_LE(rank, 11);
  }
}

TEST_P(CompressTest, AlternatingSpansTheSame) {
  AtpOptions o;
  o.basis = GetParam().basis, o.block_tokens = 64;
  o.rank = RankFixed{20}, o.decomposition = AtpDecomposition::kAlternating;
  const PrincipalBlock block = Compress(o, 4);
  const PrincipalView view = block.View(rows_.geometry, 1, 1);
  for (int64_t t = 4; t < 64; ++t) {
    for (int64_t j = 0; j < 20; ++j) {
      ASSERT_NEAR(Rebuilt(view, t, j, "value"), rows_.row(1, t)[140 + j],
                  GetParam().tolerance * 10);
    }
  }
}

// In int8 a component is off by at most half a step: 1/254 of its largest number.
TEST_P(CompressTest, Int8IsNearWhatTheCacheTypeHolds) {
  AtpOptions o;
  o.basis = GetParam().basis, o.block_tokens = 64, o.rank = RankFixed{20};
  o.basis_storage = o.principal_storage = AtpStorage::kInt8;
  const AttentionGeometry& g = rows_.geometry;
  const PrincipalBlock block = Compress(o, 4);
  for (int64_t head = 0; head < 2; ++head) {
    const PrincipalView view = block.View(g, 1, head);
    const auto* u = reinterpret_cast<const int8_t*>(view.u);
    const auto* keys = reinterpret_cast<const int8_t*>(view.keys);
    const auto key = [&](int64_t r, int64_t j) {
      return view.key_scales[r] * keys[r * DotWidth(g) + j];
    };
    for (int64_t t = 4; t < 64; ++t) {
      for (int64_t j = 0; j < 20; ++j) {
        double x = key(20, j) + key(21, j);
        for (int64_t r = 0; r < 20; ++r) x += u[r * kPageTokens + t] * key(r, j);
        ASSERT_NEAR(x, rows_.row(1, t)[80 + head * 20 + j], 0.1);
      }
    }
  }
}

// A code is off by at most half a step, 1/14 of the largest of its 32, and a little for the scale's
// own rounding.
TEST_P(CompressTest, PackedBasisIsNearTheBasis) {
  AtpOptions o;
  o.basis = GetParam().basis, o.block_tokens = 64, o.rank = RankFixed{9};
  const AttentionGeometry& g = rows_.geometry;
  const PrincipalBlock plain = Compress(o, 4);
  o.basis_storage = AtpStorage::kInt4;
  const PrincipalBlock packed = Compress(o, 4);
  const std::byte* u = plain.View(g, 1, 1).u;
  const std::byte* group = packed.View(g, 1, 1).u;
  for (int64_t first : {0, 32}) {
    std::vector<int8_t> codes(9 * 32);
    const auto* scales = reinterpret_cast<const uint16_t*>(group);
    Kernels().unpack_codes(4, reinterpret_cast<const uint8_t*>(scales + 9), codes.data(), 9 * 32);
    for (int64_t r = 0; r < 9; ++r) {
      const double scale = ToFloat(BFloat16{scales[r]});
      for (int64_t t = first; t < first + 32; ++t) {
        const double code = codes[r * 32 + t - first];
        EXPECT_NEAR(scale * code, At(u, r * kPageTokens + t), 0.53 * scale);
        if (t < 4) {
          EXPECT_EQ(code, 0) << "a sink";
        }
      }
    }
    group += packed.shape.UGroupBytes(9);
  }
}

}  // namespace
}  // namespace lowkey
