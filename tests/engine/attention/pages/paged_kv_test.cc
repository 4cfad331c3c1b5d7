#include "engine/attention/pages/paged_kv.h"

#include <cstring>

#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

class PagedKvTest : public testing::TestWithParam<StorageType> {
 protected:
  PagedKvTest() {
    auto cache = Cache::Create(8 * PageBytes(geometry_), PageBytes(geometry_));
    EXPECT_TRUE(cache.ok());
    cache_ = *std::move(cache);
  }

  absl::Status Take(SequenceCache& sequence, int64_t first_position, int64_t n_rows) {
    return TakePages({&sequence, first_position, n_rows, 0}, *cache_);
  }
  int64_t n_used_pages() const { return cache_->used_bytes() / PageBytes(geometry_); }

  const AttentionGeometry geometry_{2, 4, 2, 20, std::nullopt, GetParam()};
  std::unique_ptr<Cache> cache_;
};

INSTANTIATE_TEST_SUITE_P(Caches, PagedKvTest,
                         testing::Values(StorageType::kFloat32, StorageType::kBFloat16),
                         [](const auto& info) {
                           return info.param == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(PagedKvTest, TilesFillAPageWithoutOverlap) {
  SequenceCache sequence;
  ASSERT_TRUE(Take(sequence, 0, 1).ok());
  const std::byte* expected = sequence.pages[0].data();
  const int64_t element = StorageBytes(GetParam());
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      const KvTile tile = TileOf(geometry_, sequence.pages[0], layer, head);
      EXPECT_EQ(tile.keys, expected);
      EXPECT_EQ(tile.values, expected + 64 * 20 * element);
      expected = tile.values + 64 * geometry_.head_dim_padded() * element;
    }
  }
  EXPECT_EQ(expected, sequence.pages[0].data() + PageBytes(geometry_));
  EXPECT_EQ(geometry_.head_dim_padded() % Kernels().panel_columns, 0);
}

TEST_P(PagedKvTest, TakesAPageForEveryRow) {
  SequenceCache sequence;
  ASSERT_TRUE(Take(sequence, 0, 64).ok());
  EXPECT_EQ(sequence.pages.size(), 1u);
  ASSERT_TRUE(Take(sequence, 64, 1).ok());
  EXPECT_EQ(sequence.pages.size(), 2u);
  ASSERT_TRUE(Take(sequence, 65, 130).ok());
  EXPECT_EQ(sequence.pages.size(), 4u);
  ASSERT_TRUE(Take(sequence, 65, 130).ok());  // once more takes nothing
  EXPECT_EQ(n_used_pages(), 4);
}

TEST_P(PagedKvTest, CopiesASharedPageBeforeItIsWritten) {
  SequenceCache first;
  ASSERT_TRUE(Take(first, 0, 100).ok());
  std::memset(first.pages[1].data(), 7, PageBytes(geometry_));
  SequenceCache second = first;
  EXPECT_EQ(n_used_pages(), 2);
  ASSERT_TRUE(Take(second, 100, 1).ok());
  EXPECT_EQ(n_used_pages(), 3);
  EXPECT_EQ(second.pages[0].data(), first.pages[0].data());  // full: nobody writes it again
  ASSERT_NE(second.pages[1].data(), first.pages[1].data());
  EXPECT_EQ(std::memcmp(second.pages[1].data(), first.pages[1].data(), PageBytes(geometry_)), 0);
  const std::byte* kept = first.pages[1].data();
  ASSERT_TRUE(Take(first, 100, 1).ok());  // the last owner writes in place
  EXPECT_EQ(first.pages[1].data(), kept);
  EXPECT_EQ(n_used_pages(), 3);
}

TEST_P(PagedKvTest, ForksStartingAPageShareNothingNew) {
  SequenceCache first;
  ASSERT_TRUE(Take(first, 0, 64).ok());
  SequenceCache second = first;
  ASSERT_TRUE(Take(first, 64, 1).ok());
  ASSERT_TRUE(Take(second, 64, 1).ok());
  EXPECT_EQ(n_used_pages(), 3);
  EXPECT_NE(first.pages[1].data(), second.pages[1].data());
}

TEST_P(PagedKvTest, FullCacheLeavesWhatWasTaken) {
  SequenceCache sequence;
  const absl::Status status = Take(sequence, 0, 9 * 64);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(sequence.pages.size(), 8u);
  EXPECT_EQ(n_used_pages(), 8);
  sequence = {};
  EXPECT_EQ(n_used_pages(), 0);
}

TEST_P(PagedKvTest, FullCacheLeavesASharedPageShared) {
  SequenceCache first;
  ASSERT_TRUE(Take(first, 0, 7 * 64 + 1).ok());
  SequenceCache second = first;
  EXPECT_EQ(Take(second, 7 * 64 + 1, 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(second.pages[7].data(), first.pages[7].data());
  first = {};
  EXPECT_TRUE(Take(second, 7 * 64 + 1, 1).ok());
}

TEST_P(PagedKvTest, ReadsBackWhatWasWritten) {
  const AttentionRows rows = RandomRows(geometry_, 100, 1);
  SequenceCache sequence;
  ASSERT_TRUE(Take(sequence, 0, 100).ok());
  ThreadPool pool(1);
  for (int64_t layer = 0; layer < 2; ++layer) {
    const float* q = rows.row(layer, 0);
    const Segment segments[] = {{&sequence, 0, 30, 0}, {&sequence, 30, 70, 30}};
    WriteKv(geometry_, segments, {layer, nullptr, 0, q, q + 80, q + 120, rows.ld(), nullptr, 0},
            pool);
  }
  const auto stored = [](float x) {
    return GetParam() == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x));
  };
  const int64_t ld = 24;
  std::vector<float> keys(36 * ld, -1.0f), values(36 * ld, -1.0f);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      const KvTile tile = TileOf(geometry_, sequence.pages[1], layer, head);
      ReadKv(geometry_, tile, {5, 36}, keys.data(), values.data(), ld);
      for (int64_t i = 0; i < 31; ++i) {
        const float* row = rows.row(layer, 64 + 5 + i);
        for (int64_t j = 0; j < 20; ++j) {
          ASSERT_EQ(keys[i * ld + j], stored(row[80 + head * 20 + j]));
          ASSERT_EQ(values[i * ld + j], stored(row[120 + head * 20 + j]));
        }
      }
      EXPECT_EQ(keys[31 * ld], -1.0f);
    }
  }
}

}  // namespace
}  // namespace lowkey
