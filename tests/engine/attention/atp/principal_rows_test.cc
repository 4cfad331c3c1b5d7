#include "engine/attention/atp/principal_rows.h"

#include <cmath>

#include "engine/attention/atp/compress.h"
#include "engine/attention/pages/paged_kv.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

// Two blocks of 64 tokens, compressed, and the token after them, which reads them; two query heads
// share each of two KV heads.
class PrincipalRowsTest : public testing::Test {
 protected:
  static constexpr int64_t kTokens = 129, kDim = 8;

  void SetUp() override {
    const AttentionGeometry& g = rows_.geometry;
    auto cache = Cache::Create(int64_t{1} << 24, PageBytes(g));
    ASSERT_TRUE(cache.ok());
    cache_ = *std::move(cache);
    const Segment all{&sequence_, 0, kTokens, 0};
    ASSERT_TRUE(TakePages(all, *cache_).ok());
    ThreadPool pool(1);
    const float* q = rows_.row(0, 0);
    layer_ = {0, nullptr, 0, q, q + 4 * kDim, q + 6 * kDim, rows_.ld(), out_.data(), 4 * kDim};
    WriteKv(g, {&all, 1}, layer_, pool);
  }

  void Compress(int32_t rank, int32_t n_refined) {
    const AttentionGeometry& g = rows_.geometry;
    options_.rank = RankFixed{rank}, options_.block_tokens = 64;
    options_.refine_tokens = n_refined, options_.sinks = 3;
    CompressWorkspace workspace;
    for (int64_t b = 0; b < 2; ++b) {
      auto block = std::make_shared<PrincipalBlock>();
      block->shape = ShapeOf(g, options_);
      block->n_sinks = b == 0 ? options_.sinks : 0;
      ASSERT_TRUE(block->Allocate(g, b, *cache_).ok());
      CompressLayer(g, options_, {absl::MakeConstSpan(sequence_.pages).subspan(b, 1)}, {0, 0},
                    workspace, *block);
      blocks_.push_back(std::move(block));
    }
  }

  // The last token's output at one KV head, [2, kDim].
  std::vector<float> Attend(int32_t kv_head) {
    const AttentionGeometry& g = rows_.geometry;
    RowBlock block;
    block.Reserve(g);
    PrincipalRows far;
    far.Reserve(g, blocks_[0]->shape, {2, 128, options_.refine_tokens});
    const Segment segment{&sequence_, 0, kTokens, 0};
    const RowBlockTask task{0, kv_head, kTokens - 1, 1};
    block.Begin(g, segment, task, layer_);
    for (int64_t page : {0, 2}) {
      const int64_t end = page == 0 ? options_.sinks : kTokens;
      block.AddPage(TileOf(g, sequence_.pages[page], 0, kv_head), page, end);
    }
    const FarBlocks blocks{blocks_, 0, kv_head};
    if (options_.refine_tokens > 0) {
      far.AddRefined(g, blocks, options_.refine_tokens, block);
    } else {
      far.Add(g, blocks, block);
    }
    block.Finish(segment, task, layer_);
    const float* out = out_.data() + (kTokens - 1) * 4 * kDim + kv_head * 2 * kDim;
    return {out, out + 2 * kDim};
  }

  double Error(int32_t kv_head, const std::vector<double>& want) {
    const std::vector<float> got = Attend(kv_head);
    const double* last = want.data() + (kTokens - 1) * 4 * kDim + kv_head * 2 * kDim;
    return MaxDifference(got.data(), {last, last + 2 * kDim});
  }

  AttentionRows rows_ =
      RandomRows({1, 4, 2, kDim, std::nullopt, StorageType::kFloat32}, kTokens, 1);
  AtpOptions options_;
  std::unique_ptr<Cache> cache_;
  SequenceCache sequence_;
  std::vector<std::shared_ptr<const PrincipalBlock>> blocks_;
  std::vector<float> out_ = std::vector<float>(kTokens * 4 * kDim);
  LayerRows layer_;
};

TEST_F(PrincipalRowsTest, FullRankReadsWhatStandardReads) {
  Compress(32, 0);
  for (int32_t head : {0, 1}) EXPECT_LT(Error(head, ReferenceStandard(rows_, 0)), 1e-5);
}

TEST_F(PrincipalRowsTest, RefiningEveryFarTokenReadsWhatStandardReads) {
  Compress(1, 128);
  for (int32_t head : {0, 1}) EXPECT_LT(Error(head, ReferenceStandard(rows_, 0)), 1e-5);
}

TEST_F(PrincipalRowsTest, RefiningSomeLowersTheError) {
  const std::vector<double> standard = ReferenceStandard(rows_, 0);
  Compress(3, 0);
  const double plain = Error(0, standard) + Error(1, standard);
  blocks_.clear();
  Compress(3, 60);
  EXPECT_LT(Error(0, standard) + Error(1, standard), 0.8 * plain);
}

// A far key so well aligned that its exact score is far above every other: the running maximum
// moves, and what was read before fades.
TEST_F(PrincipalRowsTest, ChosenTokenMayOutweighEverything) {
  const float* q = rows_.row(0, kTokens - 1);
  AttentionRows aligned = rows_;
  for (int64_t j = 0; j < kDim; ++j) aligned.row(0, 70)[4 * kDim + j] = 40 * q[j];
  rows_ = aligned;
  const Segment all{&sequence_, 0, kTokens, 0};
  ThreadPool pool(1);
  const float* base = rows_.row(0, 0);
  layer_.q = base, layer_.k = base + 4 * kDim, layer_.v = base + 6 * kDim;
  WriteKv(rows_.geometry, {&all, 1}, layer_, pool);
  Compress(2, 4);
  const std::vector<float> out = Attend(0);
  for (int64_t j = 0; j < kDim; ++j) EXPECT_NEAR(out[j], rows_.row(0, 70)[6 * kDim + j], 1e-4);
}

}  // namespace
}  // namespace lowkey
