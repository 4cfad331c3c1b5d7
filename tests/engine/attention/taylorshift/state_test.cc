#include "engine/attention/taylorshift/state.h"

#include <cmath>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

AttentionGeometry Heads(int64_t n_heads, int64_t n_kv_heads, int64_t head_dim,
                        StorageType type = StorageType::kBFloat16) {
  return {2, n_heads, n_kv_heads, head_dim, std::nullopt, type};
}

int64_t Rounded(double tokens) { return static_cast<int64_t>(std::ceil(tokens / 64)) * 64; }

TEST(TaylorShape, TilesCoverEveryFeatureOnce) {
  for (int64_t d : {1, 2, 3, 16, 20, 31, 64, 128, 300, 512}) {
    const TaylorShape shape(Heads(1, 1, d));
    EXPECT_EQ(shape.n_features, 1 + d + d * (d + 1) / 2);
    EXPECT_EQ(shape.TileBegin(0), 0);
    EXPECT_EQ(shape.TileEnd(shape.n_tiles - 1), shape.n_features);
    for (int64_t t = 0; t < shape.n_tiles; ++t) {
      EXPECT_LT(shape.TileBegin(t), shape.TileEnd(t));
      EXPECT_EQ(shape.TileBegin(t) % d, 0);
      EXPECT_LE(shape.TileEnd(t) - shape.TileBegin(t), std::max<int64_t>(d, 256));
      EXPECT_LE(shape.TileStride(t), shape.TileStride(0));
    }
  }
}

TEST(TaylorSwitchTokens, IsWhereNeitherOperationsNorBytesAreMore) {
  const TaylorShiftOptions automatic;
  // One query head a KV head and bf16: by operations and by bytes, 561 * 33 / 32 and so on.
  EXPECT_EQ(*TaylorSwitchTokens(Heads(4, 4, 32), automatic), Rounded(578.5));
  EXPECT_EQ(*TaylorSwitchTokens(Heads(4, 4, 64), automatic), Rounded(2178.5));
  // Query heads that share a state: fewer operations, the same bytes.
  EXPECT_EQ(*TaylorSwitchTokens(Heads(8, 2, 64), automatic), Rounded(2178.5));
  // fp32 keys and values: half the length in bytes, the operations decide.
  EXPECT_EQ(*TaylorSwitchTokens(Heads(8, 2, 64, StorageType::kFloat32), automatic),
            Rounded(2145.0 * 65 * 1.25 / 128));
}

TEST(TaylorSwitchTokens, FormsHaveTheirOwn) {
  EXPECT_EQ(TaylorSwitchTokens(Heads(1, 1, 64), {TaylorForm::kDirect}), std::nullopt);
  EXPECT_EQ(TaylorSwitchTokens(Heads(1, 1, 64), {TaylorForm::kRecurrent}), 64);
}

// Phi of one key, as the header says it.
std::vector<double> KeyFeatures(const std::vector<float>& k) {
  const auto d = static_cast<int64_t>(k.size());
  std::vector<double> phi(k.begin(), k.end());
  for (int64_t f = 0; f < d * (d + 1) / 2; ++f) {
    const int64_t turn = f / d, j = f % d;
    phi.push_back(static_cast<double>(k[j]) * k[(j + turn) % d] * (turn == 0 ? 0.5 : 1.0));
  }
  phi.push_back(1);
  return phi;
}

// Two pages of keys and values and an empty state, at layer 1 and KV head 1.
struct Folding {
  explicit Folding(const AttentionGeometry& geometry) : g(geometry), rows(RandomRows(g, 128, 1)) {
    auto made = Cache::Create(TaylorSlabBytes(g) + 2 * PageBytes(g), PageBytes(g));
    EXPECT_TRUE(made.ok());
    cache = *std::move(made);
    slab = cache->AllocateSlab(TaylorSlabBytes(g)).value();
    const Segment segment{&sequence, 0, 128, 0};
    EXPECT_TRUE(TakePages(segment, *cache).ok());
    ThreadPool pool(1);
    const float* q = rows.row(1, 0);
    const int64_t q_dim = g.n_heads * g.head_dim, kv_dim = g.n_kv_heads * g.head_dim;
    WriteKv(g, {&segment, 1},
            {1, nullptr, 0, q, q + q_dim, q + q_dim + kv_dim, rows.ld(), nullptr, 0}, pool);
  }

  // Sums over both pages in double, [n_features, head_dim + 1], the weights last.
  std::vector<double> Expected() const {
    const int64_t d = g.head_dim, n = TaylorShape(g).n_features;
    std::vector<double> sums(n * (d + 1), 0.0);
    std::vector<float> k(d), v(d);
    for (int64_t t = 0; t < 128; ++t) {
      ReadKv(g, TileOf(g, sequence.pages[t / 64], 1, 1), {t % 64, t % 64 + 1}, k.data(), v.data(),
             d);
      const std::vector<double> phi = KeyFeatures(k);
      for (int64_t f = 0; f < n; ++f) {
        for (int64_t j = 0; j < d; ++j) sums[f * (d + 1) + j] += phi[f] * v[j];
        sums[f * (d + 1) + d] += phi[f];
      }
    }
    return sums;
  }

  AttentionGeometry g;
  AttentionRows rows;
  std::unique_ptr<Cache> cache;
  std::shared_ptr<Slab> slab;
  SequenceCache sequence;
};

TEST(TaylorFolder, AddsFeaturesTimesValues) {
  const int64_t panel = Kernels().panel_columns;
  for (StorageType type : {StorageType::kFloat32, StorageType::kBFloat16}) {
    for (int64_t d : {2, 15, 20, 64, 80}) {
      Folding fold(Heads(4, 2, d, type));
      const AttentionGeometry& g = fold.g;
      const TaylorShape shape(g);
      const std::vector<double> expected = fold.Expected();
      TaylorFolder folder;
      folder.Reserve(shape);
      for (int64_t tile = 0; tile < shape.n_tiles; ++tile) {
        const TaylorTile state = TileOf(g, shape, *fold.slab, 1, 1, tile);
        for (const PageHandle& page : fold.sequence.pages) {
          folder.Fold(g, shape, tile, TileOf(g, page, 1, 1), state);
        }
        const int64_t begin = shape.TileBegin(tile), n = shape.TileEnd(tile) - begin;
        for (int64_t f = 0; f < n; ++f) {
          const double* want = expected.data() + (begin + f) * (d + 1);
          ASSERT_NEAR(state.weights[f], want[d], 1e-4) << "feature " << begin + f << " of " << d;
          for (int64_t j = 0; j < d; ++j) {
            ASSERT_NEAR(state.sums[(j / panel * n + f) * panel + j % panel], want[j], 2e-4)
                << "feature " << begin + f << ", column " << j << " of " << d;
          }
        }
        for (int64_t f = n; f < shape.TileStride(tile); ++f) EXPECT_EQ(state.weights[f], 0.0f);
      }
    }
  }
}

TEST(TileOf, LaysHeadsSideBySide) {
  const AttentionGeometry g = Heads(4, 2, 20);
  const TaylorShape shape(g);
  const Folding fold(g);
  auto* begin = reinterpret_cast<float*>(fold.slab->data());
  for (int64_t head = 0; head < 4; ++head) {
    const float* first = TileOf(g, shape, *fold.slab, head / 2, head % 2, 0).sums;
    EXPECT_EQ(first, begin + head * shape.head_floats);
    const int64_t last_tile = shape.n_tiles - 1;
    const TaylorTile last = TileOf(g, shape, *fold.slab, head / 2, head % 2, last_tile);
    EXPECT_LE(last.weights + shape.TileStride(last_tile), first + shape.head_floats);
    EXPECT_GE(last.weights, last.sums);
  }
  EXPECT_EQ(fold.slab->size_bytes(), 4 * shape.head_floats * 4);
}

}  // namespace
}  // namespace lowkey
