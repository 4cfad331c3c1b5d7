// Tests the kernels of attention/*.cu on the emulated grid, or on the device that
// LOWKEY_TEST_DEVICE names.

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/cuda/grid/launch.h"
#include "engine/kernels/device/kernels.h"
#include "tests/engine/kernels/cuda/attention/attention_sequence.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

struct AttentionCase {
  StorageType type;
  int64_t head_dim;
  double tolerance;  // bf16 queries and weights are rounded to 8 bits where tensor cores multiply
};

class CudaAttentionTest : public testing::TestWithParam<AttentionCase> {
 protected:
  ~CudaAttentionTest() override { emulated::SetThreadOrder(emulated::ThreadOrder::kForward); }

  static Shape ShapeOf(int64_t n_kv_heads, int64_t group, int64_t n_tokens,
                       std::optional<int64_t> window = {}) {
    return {GetParam().type, n_kv_heads, group, GetParam().head_dim, window, n_tokens};
  }
};

INSTANTIATE_TEST_SUITE_P(Heads, CudaAttentionTest,
                         testing::Values(AttentionCase{StorageType::kFloat32, 20, 2e-6},
                                         AttentionCase{StorageType::kFloat32, 32, 2e-6},
                                         AttentionCase{StorageType::kFloat32, 64, 2e-6},
                                         AttentionCase{StorageType::kFloat32, 80, 2e-6},
                                         AttentionCase{StorageType::kFloat32, 128, 2e-6},
                                         AttentionCase{StorageType::kBFloat16, 20, 2e-6},
                                         AttentionCase{StorageType::kBFloat16, 32, 6e-3},
                                         AttentionCase{StorageType::kBFloat16, 64, 6e-3},
                                         AttentionCase{StorageType::kBFloat16, 80, 6e-3},
                                         AttentionCase{StorageType::kBFloat16, 96, 6e-3},
                                         AttentionCase{StorageType::kBFloat16, 128, 6e-3},
                                         AttentionCase{StorageType::kFloat32, 200, 4e-6},
                                         AttentionCase{StorageType::kBFloat16, 512, 4e-6}),
                         [](const auto& info) {
                           return std::string(info.param.type == StorageType::kFloat32 ? "fp32_"
                                                                                       : "bf16_") +
                                  std::to_string(info.param.head_dim);
                         });

TEST_P(CudaAttentionTest, MatchesTheReferenceAtEveryGroupAndWindow) {
  double worst = 0;
  for (const int64_t group : {1, 3, 4, 8}) {
    for (const std::optional<int64_t>& window :
         {std::optional<int64_t>(), std::optional<int64_t>(1), std::optional<int64_t>(40)}) {
      Sequence sequence(ShapeOf(group == 3 ? 2 : 1, group, 75, window), 1);
      const Rows rows{60, 75};
      sequence.Write({0, 75});
      worst = std::max(worst,
                       MaxDifference(sequence.Attend(rows, RowTile::kMany, Spans::kTogether).data(),
                                     sequence.Reference(rows)));
    }
  }
  EXPECT_LE(worst, GetParam().tolerance);
  RecordProperty("max_difference", std::to_string(worst));
}

// The prompt runs at once, cut anywhere, and token by token, with only earlier tokens in the cache.
TEST_P(CudaAttentionTest, RowsHaveTheSameBitsInAnyChunk) {
  for (const std::optional<int64_t>& window :
       {std::optional<int64_t>(), std::optional<int64_t>(9)}) {
    const Shape shape = ShapeOf(1, 3, 70, window);
    Sequence at_once(shape, 2), cut(shape, 2);
    at_once.Write({0, 70});
    const std::vector<float> expected = at_once.Attend({0, 70}, RowTile::kMany, Spans::kTogether);
    std::vector<float> out;
    for (const Rows rows : {Rows{0, 5}, Rows{5, 49}, Rows{49, 62}}) {
      cut.Write(rows);
      out = Joined(out, cut.Attend(rows, RowTile::kMany, Spans::kTogether));
    }
    for (int64_t token = 62; token < 70; ++token) {
      cut.Write({token, token + 1});
      out = Joined(out, cut.Attend({token, token + 1}, RowTile::kFew, Spans::kSpread));
    }
    EXPECT_TRUE(SameBits(out, expected)) << "window " << window.value_or(0);
  }
}

TEST(SpanTest, ThereAreAtMostSixteenAndAPart) {
  int64_t before = 2;
  for (int64_t n = 0; n < 200000; ++n) {
    const int64_t pages = SpanPages(n);
    ASSERT_TRUE(pages == before || pages == 2 * before) << n;
    before = pages;
    const int64_t n_pages = n / kTokensInPage + 1;
    ASSERT_LE((n_pages + pages - 1) / pages, 17) << n;
  }
}

// From token 2,048 on spans are twice as long.
TEST(CudaAttentionMemoryTest, RowsOnBothSidesOfLongerSpans) {
  for (const auto& [type, head_dim] :
       {std::pair(StorageType::kBFloat16, 64), std::pair(StorageType::kFloat32, 20)}) {
    Sequence sequence({type, 1, 2, head_dim, std::nullopt, 2052}, 8);
    sequence.Write({0, 2052});
    const Rows rows{2044, 2052};
    const std::vector<float> together = sequence.Attend(rows, RowTile::kMany, Spans::kTogether);
    EXPECT_LE(MaxDifference(together.data(), sequence.Reference(rows)),
              type == StorageType::kFloat32 ? 2e-6 : 6e-3);
    std::vector<float> by_token;
    for (int64_t t = rows.first; t < rows.end; ++t) {
      by_token = Joined(by_token, sequence.Attend({t, t + 1}, RowTile::kFew, Spans::kSpread));
    }
    EXPECT_TRUE(SameBits(by_token, together));
  }
}

// Sequences of several spans: one block folds spans, or each span has a block and
// the parts are joined.
TEST_P(CudaAttentionTest, SpreadSpansHaveTheBitsOfOneBlock) {
  if (GetParam().head_dim > 128) GTEST_SKIP() << "the same code, slowly";
  for (const std::optional<int64_t>& window :
       {std::optional<int64_t>(), std::optional<int64_t>(184)}) {
    // Some of the rows of one warp see nothing in the first span under the window.
    Sequence sequence(ShapeOf(1, 2, 316, window), 3);
    sequence.Write({0, 316});
    const Rows rows{307, 316};
    const std::vector<float> together = sequence.Attend(rows, RowTile::kMany, Spans::kTogether);
    EXPECT_LE(MaxDifference(together.data(), sequence.Reference(rows)), GetParam().tolerance);
    EXPECT_TRUE(SameBits(sequence.Attend(rows, RowTile::kMany, Spans::kSpread), together));
    std::vector<float> by_token;
    for (int64_t t = rows.first; t < rows.end; ++t) {
      const Spans spans = t % 2 == 0 ? Spans::kSpread : Spans::kTogether;
      by_token = Joined(by_token, sequence.Attend({t, t + 1}, RowTile::kFew, spans));
    }
    EXPECT_TRUE(SameBits(by_token, together)) << "window " << window.value_or(0);
  }
}

// The grid's warpgroups multiply in the order of its warps. Nearly 128 rows, rows that see nothing
// of a page that others see, spans that are folded and spans that are joined.
TEST(WarpgroupAttentionTest, HasTheBitsOfTensorTiles) {
  if (!IsEmulated(KernelTestDevice())) GTEST_SKIP() << "a device tries it when a model is loaded";
  const auto many = [](Sequence& sequence, Rows rows, Spans spans, Way way) {
    return sequence.Attend(rows, RowTile::kMany, spans, Results::kRounded, way);
  };
  for (const int64_t head_dim : {64, 128}) {
    for (const std::optional<int64_t>& window :
         {std::optional<int64_t>(), std::optional<int64_t>(70)}) {
      Sequence sequence({StorageType::kBFloat16, 1, 3, head_dim, window, 300}, 9);
      sequence.Write({0, 300});
      for (const auto order : {emulated::ThreadOrder::kForward, emulated::ThreadOrder::kShuffled}) {
        emulated::SetThreadOrder(order);
        for (const Rows rows : {Rows{0, 41}, Rows{250, 300}}) {
          for (const Spans spans : {Spans::kTogether, Spans::kSpread}) {
            EXPECT_TRUE(SameBits(many(sequence, rows, spans, Way::kWarpgroups),
                                 many(sequence, rows, spans, Way::kChosen)))
                << head_dim << " " << window.value_or(0) << " " << rows.first;
          }
        }
      }
    }
  }
  emulated::SetThreadOrder(emulated::ThreadOrder::kForward);
}

TEST_P(CudaAttentionTest, RoundedResultsAreTheResultsRounded) {
  Sequence sequence(ShapeOf(1, 2, 275), 5);
  sequence.Write({0, 275});
  for (const auto& [tile, spans] :
       {std::pair(RowTile::kMany, Spans::kTogether), std::pair(RowTile::kFew, Spans::kTogether),
        std::pair(RowTile::kFew, Spans::kSpread)}) {
    std::vector<float> expected = sequence.Attend({268, 275}, tile, spans);
    for (float& x : expected) x = ToFloat(ToBFloat16(x));
    EXPECT_TRUE(SameBits(sequence.Attend({268, 275}, tile, spans, Results::kRounded), expected));
  }
}

TEST_P(CudaAttentionTest, NoOrderOfThreadsChangesBits) {
  std::vector<std::vector<float>> outs;
  for (const auto order : {emulated::ThreadOrder::kForward, emulated::ThreadOrder::kBackward,
                           emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    Sequence sequence(ShapeOf(1, 4, 277), 4);
    sequence.Write({0, 277});
    std::vector<float> out = sequence.Attend({244, 277}, RowTile::kMany, Spans::kTogether);
    outs.push_back(Joined(out, sequence.Attend({276, 277}, RowTile::kFew, Spans::kSpread)));
  }
  EXPECT_TRUE(SameBits(outs[0], outs[1]));
  EXPECT_TRUE(SameBits(outs[0], outs[2]));
}

TEST(CudaAttentionMemoryTest, OnePageAtATimeHasTheBitsOfTwo) {
  if (!IsEmulated(KernelTestDevice())) GTEST_SKIP() << "a device has the memory that it has";
  const int64_t most = KernelTestDevice().most_shared_bytes();
  std::vector<std::vector<float>> outs;
  for (const int64_t bytes : {most, int64_t{99} << 10}) {
    emulated::LimitShared(bytes);
    Sequence sequence({StorageType::kBFloat16, 1, 3, 128, 100, 533}, 7);
    sequence.Write({0, 533});
    outs.push_back(sequence.Attend({430, 533}, RowTile::kMany, Spans::kTogether));
  }
  emulated::LimitShared(most);
  EXPECT_TRUE(SameBits(outs[0], outs[1]));
}

// Rows of the third page read the two earlier pages as closed, and their own as it is.
TEST_P(CudaAttentionTest, ClosedPagesAreReadAsTheyWereClosed) {
  for (const int64_t bits : {8, 4}) {
    for (const std::optional<int64_t>& window :
         {std::optional<int64_t>(), std::optional<int64_t>(40)}) {
      Shape shape = ShapeOf(2, 3, 150, window);
      shape.closed_bits = bits;
      Sequence sequence(shape, 6);
      sequence.Write({0, 150});
      sequence.Close(128);
      EXPECT_LT(sequence.MaxClosedError(), bits == 8 ? 0.025 : 0.4);
      const Rows rows{130, 150};
      const std::vector<float> together = sequence.Attend(rows, RowTile::kMany, Spans::kTogether);
      EXPECT_LE(MaxDifference(together.data(), sequence.Reference(rows)),
                1.5 * GetParam().tolerance)
          << bits << " bits, window " << window.value_or(0);
      std::vector<float> by_token;
      for (int64_t t = rows.first; t < rows.end; ++t) {
        by_token = Joined(by_token, sequence.Attend({t, t + 1}, RowTile::kFew, Spans::kSpread));
      }
      EXPECT_TRUE(SameBits(by_token, together)) << bits << " bits";
    }
  }
}

TEST_P(CudaAttentionTest, NoOrderOfThreadsChangesBitsOfClosedPages) {
  std::vector<std::vector<float>> outs;
  for (const auto order : {emulated::ThreadOrder::kForward, emulated::ThreadOrder::kBackward,
                           emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    Shape shape = ShapeOf(1, 4, 533);
    shape.closed_bits = 4;
    Sequence sequence(shape, 7);
    sequence.Write({0, 533});
    sequence.Close(512);
    std::vector<float> out = sequence.Attend({520, 533}, RowTile::kMany, Spans::kTogether);
    outs.push_back(Joined(out, sequence.Attend({532, 533}, RowTile::kFew, Spans::kSpread)));
  }
  EXPECT_TRUE(SameBits(outs[0], outs[1]));
  EXPECT_TRUE(SameBits(outs[0], outs[2]));
}

// More query heads than a tile has rows.
TEST_P(CudaAttentionTest, OneTokenInSeveralTiles) {
  Sequence sequence(ShapeOf(1, 33, 40), 5);
  sequence.Write({0, 40});
  const std::vector<float> few = sequence.Attend({39, 40}, RowTile::kFew, Spans::kSpread);
  EXPECT_LE(MaxDifference(few.data(), sequence.Reference({39, 40})), GetParam().tolerance);
  EXPECT_TRUE(SameBits(sequence.Attend({39, 40}, RowTile::kMany, Spans::kSpread), few));
}

}  // namespace
}  // namespace lowkey
