#include "engine/attention/principal_block.h"

#include <cmath>
#include <cstring>

#include "engine/attention/paged_kv.h"
#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

AttentionGeometry Geometry(StorageType type = StorageType::kFloat32) {
  return {2, 4, 2, 20, std::nullopt, type};
}

int64_t RankOf(const RankPolicy& rank, AtpBasis basis, int32_t block_tokens) {
  AtpOptions o;
  o.rank = rank, o.basis = basis, o.block_tokens = block_tokens;
  return ShapeOf(Geometry(), o).rank;
}

TEST(ShapeOf, FractionIsOfTheSmallerOfBlockAndBasisColumns) {
  EXPECT_EQ(RankOf(RankFraction{0.25}, AtpBasis::kKv, 512), 10);     // of 2 x 20
  EXPECT_EQ(RankOf(RankFraction{0.25}, AtpBasis::kLayer, 512), 20);  // of 2 x 2 x 20
  EXPECT_EQ(RankOf(RankFraction{0.25}, AtpBasis::kLayer, 64), 16);   // of 64
  EXPECT_EQ(RankOf(RankFraction{1.0}, AtpBasis::kLayer, 128), 80);
  EXPECT_EQ(RankOf(RankFraction{1e-9}, AtpBasis::kLayer, 128), 1);
}

TEST(ShapeOf, FixedRankIsAtMostFull) {
  EXPECT_EQ(RankOf(RankFixed{7}, AtpBasis::kKv, 512), 7);
  EXPECT_EQ(RankOf(RankFixed{500}, AtpBasis::kKv, 512), 40);
  EXPECT_EQ(RankOf(RankFixed{64}, AtpBasis::kLayer, 64), 64);
}

TEST(ShapeOf, CountsEveryByte) {
  for (StorageType type : {StorageType::kFloat32, StorageType::kBFloat16}) {
    const AttentionGeometry g = Geometry(type);
    AtpOptions o;
    o.rank = RankFixed{9}, o.block_tokens = 128;
    for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
      o.basis = basis;
      const PrincipalShape shape = ShapeOf(g, o);
      EXPECT_GE(shape.rank_padded, 10);
      EXPECT_EQ(shape.rank_padded % Kernels().panel_columns, 0);
      const int64_t n_bases = basis == AtpBasis::kLayer ? 1 : 2;
      const int64_t elements =
          n_bases * 128 * 9 + 2 * (20 * shape.rank_padded + 10 * g.head_dim_padded());
      EXPECT_EQ(shape.LayerBytes(g), elements * StorageBytes(type));
      EXPECT_EQ(shape.SlabBytes(g), 2 * shape.LayerBytes(g));
    }
  }
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
    const AttentionGeometry& g = rows_.geometry;
    AtpOptions o;
    o.rank = RankFixed{rank}, o.basis = GetParam().basis, o.block_tokens = 64;
    PrincipalBlock block{ShapeOf(g, o), n_sinks, nullptr};
    auto slab = cache_->AllocateSlab(block.shape.SlabBytes(g));
    EXPECT_TRUE(slab.ok());
    block.slab = *std::move(slab);
    for (int64_t layer = 0; layer < g.n_layers; ++layer) {
      for (int64_t head = 0; head < block.shape.n_bases(g); ++head) {
        CompressLayer(g, sequence_.pages, layer, head, workspace_, block);
      }
    }
    return block;
  }

  double At(const std::byte* p, int64_t index) const {
    if (GetParam().type == StorageType::kFloat32) return reinterpret_cast<const float*>(p)[index];
    return ToFloat(BFloat16{reinterpret_cast<const uint16_t*>(p)[index]});
  }

  // Column j of token t's key (or value): mean + U K'.
  double Rebuilt(const PrincipalBlock& block, const PrincipalView& view, int64_t t, int64_t j,
                 const char* what) const {
    const AttentionGeometry& g = rows_.geometry;
    const int64_t r = block.shape.rank, padded = g.head_dim_padded();
    const bool key = std::strcmp(what, "key") == 0;
    const auto principal = [&](int64_t i) {
      return key ? At(view.keys, j * block.shape.rank_padded + i) : At(view.values, i * padded + j);
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
                           return std::string(AtpBasisName(info.param.basis)) +
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
            ASSERT_NEAR(Rebuilt(block, view, t, j, "key"), row[80 + head * 20 + j],
                        GetParam().tolerance);
            ASSERT_NEAR(Rebuilt(block, view, t, j, "value"), row[120 + head * 20 + j],
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

}  // namespace
}  // namespace lowkey
