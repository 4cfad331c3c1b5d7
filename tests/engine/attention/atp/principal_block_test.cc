#include "engine/attention/atp/principal_block.h"

#include <algorithm>
#include <cstring>

#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

AttentionGeometry Geometry(StorageType type = StorageType::kFloat32) {
  return {2, 4, 2, 20, std::nullopt, type};
}

int64_t LayerBytes(const PrincipalShape& shape, const AttentionGeometry& g) {
  return shape.n_bases(g) * shape.PartBytes(g, shape.rank) + g.n_kv_heads * shape.KeptBytes(g);
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
  EXPECT_EQ(RankOf(RankFraction{0.25}, AtpBasis::kInput, 512), 20);  // of 4 x 20
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
      const int64_t n_bases = basis == AtpBasis::kLayer ? 1 : 2;
      const int64_t elements = n_bases * 128 * 9 + 2 * 10 * (DotWidth(g) + g.head_dim_padded());
      EXPECT_EQ(LayerBytes(shape, g), elements * StorageBytes(type));
      EXPECT_EQ(shape.SlabBytes(g), 2 * LayerBytes(shape, g));
      o.refine_tokens = 1;  // each token's key and value besides
      EXPECT_EQ(LayerBytes(ShapeOf(g, o), g) - LayerBytes(shape, g),
                2 * 128 * (DotWidth(g) + g.head_dim_padded()) * StorageBytes(type));
      o.kept_storage = AtpStorage::kInt8;
      EXPECT_EQ(LayerBytes(ShapeOf(g, o), g) - LayerBytes(shape, g),
                2 * 128 *
                    (QuantizedRowBytes(CacheStorage::kInt8, DotWidth(g)) +
                     QuantizedRowBytes(CacheStorage::kInt8, g.head_dim_padded())));
      o.refine_tokens = 0;
      o.kept_storage = AtpStorage::kCache;
      o.basis_storage = AtpStorage::kInt8;
      EXPECT_EQ(LayerBytes(shape, g) - LayerBytes(ShapeOf(g, o), g),
                n_bases * 128 * 9 * (StorageBytes(type) - 1));
      o.basis_storage = AtpStorage::kInt4;  // with a scale of two bytes for every 32
      EXPECT_EQ(LayerBytes(shape, g) - LayerBytes(ShapeOf(g, o), g),
                n_bases * 128 * 9 * StorageBytes(type) - n_bases * 4 * 9 * (16 + 2));
      o.basis_storage = AtpStorage::kCache;
    }
  }
}

TEST(ShapeOf, InputMayBeWiderThanItsHeads) {
  AttentionGeometry g = Geometry();
  g.hidden_dim = 100;
  AtpOptions o;
  o.basis = AtpBasis::kInput;
  EXPECT_EQ(ShapeOf(g, o).rank, 25);
  EXPECT_EQ(ShapeOf(g, o).n_bases(g), 1);
}

TEST(ShapeOf, LinearReadoutKeepsNoBasis) {
  const AttentionGeometry g = Geometry();
  AtpOptions o;
  o.rank = RankFixed{9};
  const int64_t exact = LayerBytes(ShapeOf(g, o), g);
  o.readout = AtpReadout::kLinear;
  EXPECT_EQ(exact - LayerBytes(ShapeOf(g, o), g), 512 * 9 * 4);
}

TEST(ShapeOf, PoliciesThatNeedTheDataReserveTheFullRank) {
  EXPECT_EQ(RankOf(RankEnergy{0.5}, AtpBasis::kKv, 512), 40);
  EXPECT_EQ(RankOf(RankEntropy{}, AtpBasis::kLayer, 64), 64);
}

// What a row reads of one block does not lie where it lies in the next, the ends of slabs apart.
TEST(PrincipalBlock, PartsOfSuccessiveBlocksAreOutOfStep) {
  const AttentionGeometry g = Geometry();
  auto cache = Cache::Create(int64_t{1} << 24, PageBytes(g));
  ASSERT_TRUE(cache.ok());
  AtpOptions o;
  o.rank = RankFixed{4}, o.block_tokens = 64, o.basis = AtpBasis::kKv;
  std::vector<int64_t> at;
  for (int64_t number = 0; number < 4; ++number) {
    PrincipalBlock block{ShapeOf(g, o), 0, nullptr, {}, {}};
    ASSERT_TRUE(block.Allocate(g, number, **cache).ok());
    at.push_back(block.View(g, 1, 0).u - block.slab->data());
  }
  std::sort(at.begin(), at.end());
  EXPECT_EQ(std::unique(at.begin(), at.end()), at.end());
}

// What a block of parts of different ranks holds after Trim is what it held before.
TEST(PrincipalBlock, TrimGivesTheExcessBack) {
  const AttentionGeometry g = Geometry();
  AtpOptions o;
  o.rank = RankEnergy{0.9}, o.block_tokens = 64, o.basis = AtpBasis::kKv, o.refine_tokens = 1;
  for (AtpStorage storage : {AtpStorage::kCache, AtpStorage::kInt8}) {
    o.principal_storage = storage;
    auto cache = Cache::Create(int64_t{1} << 24, PageBytes(g));
    ASSERT_TRUE(cache.ok());
    PrincipalBlock block{ShapeOf(g, o), 0, nullptr, {}, {}};
    ASSERT_TRUE(block.Allocate(g, 3, **cache).ok());
    const int64_t reserved = (*cache)->used_bytes();
    EXPECT_EQ(reserved, block.shape.SlabBytes(g));
    block.ranks = {3, 40, 1, 17};
    const int64_t kept = block.shape.KeptBytes(g);
    int64_t bytes = 0;
    for (int part = 0; part < 4; ++part) {
      const PrincipalView view = block.View(g, part / 2, part % 2);
      const int64_t size = block.shape.PartBytes(g, view.rank);
      std::fill_n(block.slab->data() + (view.u - block.slab->data()), size, std::byte(part + 1));
      EXPECT_EQ(view.kept, block.slab->data() + part * kept);
      std::fill_n(block.slab->data() + part * kept, kept, std::byte(part + 5));
      bytes += size + kept;
    }
    block.Trim(g);
    EXPECT_EQ(block.slab->size_bytes(), bytes);
    EXPECT_EQ((*cache)->used_bytes(), bytes);
    for (int part = 0; part < 4; ++part) {
      const PrincipalView view = block.View(g, part / 2, part % 2);
      EXPECT_EQ(view.rank, block.ranks[part]);
      const auto all = [](const std::byte* from, int64_t n, int value) {
        return std::all_of(from, from + n, [&](std::byte b) { return b == std::byte(value); });
      };
      EXPECT_TRUE(all(view.u, block.shape.PartBytes(g, view.rank), part + 1));
      EXPECT_TRUE(all(view.kept, kept, part + 5));
    }
    EXPECT_EQ(block.MeanRank(), 61.0 / 4);
  }
}

}  // namespace
}  // namespace lowkey
