#include "engine/cache/cache.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kPage = 4096;

std::unique_ptr<Cache> Make(int64_t budget_bytes, int64_t page_bytes = kPage) {
  auto cache = Cache::Create(budget_bytes, page_bytes);
  EXPECT_TRUE(cache.ok()) << cache.status();
  return *std::move(cache);
}

PageHandle Page(Cache& cache) {
  auto page = cache.AllocatePage();
  EXPECT_TRUE(page.ok()) << page.status();
  return *std::move(page);
}

TEST(CacheCreate, RefusesABudgetWithoutAPage) {
  for (const auto& [budget, page] : std::vector<std::pair<int64_t, int64_t>>{
           {kPage - 1, kPage}, {0, kPage}, {-1, kPage}, {kPage, 0}, {kPage, -kPage}}) {
    const auto cache = Cache::Create(budget, page);
    EXPECT_EQ(cache.status().code(), absl::StatusCode::kInvalidArgument) << budget << ", " << page;
  }
  EXPECT_EQ(Cache::Create(10, 20).status().message(),
            "cache: 10 bytes, expected at least one page of 20 bytes");
}

TEST(CacheCreate, StartsEmpty) {
  const auto cache = Make(10 * kPage + 5);
  EXPECT_EQ(cache->used_bytes(), 0);
  EXPECT_EQ(cache->budget_bytes(), 10 * kPage + 5);
  EXPECT_EQ(cache->page_bytes(), kPage);
}

TEST(CachePages, AreDistinctAndWritable) {
  const auto cache = Make(3 * kPage);
  const PageHandle a = Page(*cache), b = Page(*cache), c = Page(*cache);
  std::memset(a.data(), 1, kPage);
  std::memset(b.data(), 2, kPage);
  std::memset(c.data(), 3, kPage);
  EXPECT_EQ(a.data()[0], std::byte{1});
  EXPECT_EQ(a.data()[kPage - 1], std::byte{1});
  EXPECT_EQ(b.data()[0], std::byte{2});
  EXPECT_EQ(b.data()[kPage - 1], std::byte{2});
  EXPECT_EQ(cache->used_bytes(), 3 * kPage);
}

// Pages and slabs lie in different places: together they must not take twice the budget.
TEST(CachePages, FreePagesGoBackBeforeSlabsTakeTheirBytes) {
  constexpr int64_t kLarge = 1 << 20, kBudget = 16 * kLarge;
  const auto cache = Make(kBudget, kLarge);
  std::vector<const std::byte*> places;
  {
    std::vector<PageHandle> pages;
    for (int i = 0; i < 16; ++i) {
      pages.push_back(Page(*cache));
      std::memset(pages.back().data(), 1, kLarge);
      places.push_back(pages.back().data());
    }
  }
  const auto n_written = [&places] {
    return std::count_if(places.begin(), places.end(),
                         [](const std::byte* place) { return *place == std::byte{1}; });
  };
  EXPECT_EQ(n_written(), 16) << "memory that is warm is kept";
  const auto slab = cache->AllocateSlab(10 * kLarge);
  ASSERT_TRUE(slab.ok()) << slab.status();
  EXPECT_EQ(n_written(), 6);
  const PageHandle page = Page(*cache);
  EXPECT_EQ(*page.data(), std::byte{1}) << "the warmest one is taken";
}

// Takes 48 slabs of 1 MiB that hold ones, and frees every other one: no later slab of 2 MiB fits
// into the gaps. Returns where the freed slabs were.
std::vector<const std::byte*> LeaveGaps(Cache& cache, std::vector<std::shared_ptr<Slab>>& held) {
  constexpr int64_t kLarge = 1 << 20;
  std::vector<const std::byte*> gaps;
  std::vector<std::shared_ptr<Slab>> others;
  for (int i = 0; i < 48; ++i) {
    auto slab = *cache.AllocateSlab(kLarge);
    std::memset(slab->data(), 1, kLarge);
    if (i % 2 == 0) gaps.push_back(slab->data());
    (i % 2 == 0 ? others : held).push_back(std::move(slab));
  }
  return gaps;
}

int64_t CountOnes(const std::vector<const std::byte*>& places) {
  return std::count_if(places.begin(), places.end(),
                       [](const std::byte* place) { return *place == std::byte{1}; });
}

// A full cache of slabs, every other one of which is free again.
class CacheGapsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kLarge = 1 << 20;

  void SetUp() override {
    if (SlabRegions::kRegionBytes == 0) {
      GTEST_SKIP() << "every slab is a region under the sanitizer";
    }
    gaps_ = LeaveGaps(*cache_, held_);
  }

  const std::unique_ptr<Cache> cache_ = Make(48 * kLarge, kLarge);
  std::vector<std::shared_ptr<Slab>> held_;
  std::vector<const std::byte*> gaps_;
};

TEST_F(CacheGapsTest, GoBackBeforeLargerSlabsTakeTheirBytes) {
  EXPECT_EQ(CountOnes(gaps_), 24) << "memory that is warm is kept";
  for (int i = 0; i < 12; ++i) {
    held_.push_back(*cache_->AllocateSlab(2 * kLarge));
    std::memset(held_.back()->data(), 2, 2 * kLarge);
  }
  EXPECT_EQ(CountOnes(gaps_), 0) << "slabs have the whole budget";
  for (int i = 0; i < 24; ++i) EXPECT_EQ(held_[i]->data()[kLarge - 1], std::byte{1});
}

TEST_F(CacheGapsTest, GoBackBeforePagesTakeTheirBytes) {
  std::vector<PageHandle> pages;
  for (int i = 0; i < 24; ++i) pages.push_back(Page(*cache_));
  EXPECT_EQ(CountOnes(gaps_), 0) << "slabs and pages have the whole budget";
  for (const auto& slab : held_) EXPECT_EQ(slab->data()[kLarge - 1], std::byte{1});
}

TEST(CachePages, DroppedPageIsUsedAgain) {
  const auto cache = Make(kPage);
  const std::byte* first = nullptr;
  {
    const PageHandle page = Page(*cache);
    first = page.data();
  }
  EXPECT_EQ(cache->used_bytes(), 0);
  EXPECT_EQ(Page(*cache).data(), first);
}

TEST(CachePages, WarmestPageComesBackFirst) {
  const auto cache = Make(4 * kPage);
  PageHandle a = Page(*cache), b = Page(*cache), c = Page(*cache);
  const std::byte* last = b.data();
  a = {};
  b = {};
  EXPECT_EQ(Page(*cache).data(), last);
}

TEST(CachePages, ExhaustionLeavesTheAccountsRight) {
  const auto cache = Make(2 * kPage + 100);
  PageHandle a = Page(*cache), b = Page(*cache);
  for (int i = 0; i < 3; ++i) {
    const auto refused = cache->AllocatePage();
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(refused.status().message(),
              "cache: 8192 of 8292 bytes used, no page of 4096 bytes left");
    EXPECT_EQ(cache->used_bytes(), 2 * kPage);
  }
  b = {};
  EXPECT_EQ(cache->used_bytes(), kPage);
  EXPECT_TRUE(cache->AllocatePage().ok());
}

TEST(PageHandle, DefaultIsEmpty) {
  const PageHandle page;
  EXPECT_FALSE(static_cast<bool>(page));
  const PageHandle copy = page;
  EXPECT_FALSE(static_cast<bool>(copy));
}

TEST(PageHandle, CopiesShareThePageUntilTheLastGoes) {
  const auto cache = Make(2 * kPage);
  PageHandle a = Page(*cache);
  EXPECT_TRUE(a.unique());
  PageHandle b = a;
  EXPECT_EQ(b.data(), a.data());
  EXPECT_FALSE(a.unique());
  EXPECT_FALSE(b.unique());
  EXPECT_EQ(cache->used_bytes(), kPage);
  a = {};
  EXPECT_TRUE(b.unique());
  EXPECT_EQ(cache->used_bytes(), kPage);
  b = {};
  EXPECT_EQ(cache->used_bytes(), 0);
}

TEST(PageHandle, MoveLeavesTheSourceEmpty) {
  const auto cache = Make(2 * kPage);
  PageHandle a = Page(*cache);
  const std::byte* data = a.data();
  PageHandle b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_TRUE(b.unique());
  PageHandle c = Page(*cache);
  c = std::move(b);  // what c held goes
  EXPECT_EQ(c.data(), data);
  EXPECT_EQ(cache->used_bytes(), kPage);
}

TEST(PageHandle, AssignmentFromItselfKeepsThePage) {
  const auto cache = Make(kPage);
  PageHandle a = Page(*cache);
  const PageHandle& alias = a;
  a = alias;
  EXPECT_TRUE(a.unique());
  EXPECT_EQ(cache->used_bytes(), kPage);
}

TEST(CacheSlabs, AreZeroedAndCountedUntilTheLastOwnerGoes) {
  const auto cache = Make(10 * kPage);
  auto slab = cache->AllocateSlab(1000);
  ASSERT_TRUE(slab.ok());
  EXPECT_EQ((*slab)->size_bytes(), 1000);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ((*slab)->data()[i], std::byte{0});
  EXPECT_EQ(cache->used_bytes(), 1000);
  std::shared_ptr<Slab> second = *slab;
  slab->reset();
  EXPECT_EQ(cache->used_bytes(), 1000);
  second.reset();
  EXPECT_EQ(cache->used_bytes(), 0);
}

TEST(CacheSlabs, AreZeroedAgainWhenMemoryComesBack) {
  const auto cache = Make(10 * kPage);
  for (int i = 0; i < 4; ++i) {
    const auto slab = cache->AllocateSlab(3 * kPage);
    ASSERT_TRUE(slab.ok());
    for (int64_t at = 0; at < 3 * kPage; ++at) ASSERT_EQ((*slab)->data()[at], std::byte{0});
    std::memset((*slab)->data(), 0xff, 3 * kPage);
  }
}

TEST(CacheSlabs, ShareTheBudgetWithPages) {
  const auto cache = Make(4 * kPage);
  const auto slab = cache->AllocateSlab(3 * kPage + 1);
  ASSERT_TRUE(slab.ok());
  EXPECT_EQ(cache->AllocatePage().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->used_bytes(), 3 * kPage + 1);

  const auto other = Make(4 * kPage);
  const PageHandle page = Page(*other);
  const auto refused = other->AllocateSlab(3 * kPage + 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(other->used_bytes(), kPage);
  EXPECT_TRUE(other->AllocateSlab(3 * kPage).ok());
}

TEST(CacheSlabs, RefusesImpossibleSizes) {
  const auto cache = Make(4 * kPage);
  for (int64_t size : {int64_t{-1}, 4 * kPage + 1, std::numeric_limits<int64_t>::max(),
                       std::numeric_limits<int64_t>::min()}) {
    EXPECT_EQ(cache->AllocateSlab(size).status().code(), absl::StatusCode::kResourceExhausted)
        << size;
  }
  EXPECT_EQ(cache->used_bytes(), 0);
}

TEST(CacheSlabs, AreCopiedWhereOthersHoldThem) {
  const auto cache = Make(4 * kPage);
  std::shared_ptr<Slab> slab;
  ASSERT_TRUE(cache->MakeOwn(kPage, slab).ok());
  ASSERT_NE(slab, nullptr);
  std::memset(slab->data(), 5, kPage);
  const Slab* const first = slab.get();
  ASSERT_TRUE(cache->MakeOwn(kPage, slab).ok());
  EXPECT_EQ(slab.get(), first) << "nobody else holds it";
  const std::shared_ptr<Slab> other = slab;
  ASSERT_TRUE(cache->MakeOwn(kPage, slab).ok());
  EXPECT_NE(slab.get(), first);
  EXPECT_EQ(slab->data()[kPage - 1], std::byte{5});
  EXPECT_EQ(cache->used_bytes(), 2 * kPage);
}

TEST(CacheSlabs, AreOwnOnceTheReclaimerDroppedTheOtherHolder) {
  const auto cache = Make(kPage);
  std::shared_ptr<Slab> slab = *cache->AllocateSlab(kPage), other = slab;
  EXPECT_EQ(cache->MakeOwn(kPage, slab).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(slab, other);
  const Slab* const first = slab.get();
  // It frees nothing: the slab has no room for a copy, and needs none.
  cache->SetReclaimer([&other] { return std::exchange(other, nullptr) != nullptr; });
  EXPECT_TRUE(cache->MakeOwn(kPage, slab).ok());
  EXPECT_EQ(slab.get(), first);
}

// The invariant of cache.h over random histories of pages, copies and slabs.
TEST(Cache, AccountsHoldOverRandomOperations) {
  const int64_t budget = 40 * kPage + 77;
  const auto cache = Make(budget);
  std::mt19937 rng(1);
  std::vector<PageHandle> handles;
  std::vector<std::shared_ptr<Slab>> slabs;
  for (int i = 0; i < 20000; ++i) {
    const uint32_t kind = rng() % 6;
    if (kind <= 1) {
      auto page = cache->AllocatePage();
      if (page.ok()) handles.push_back(*std::move(page));
    } else if (kind == 2 && !handles.empty()) {
      handles.push_back(PageHandle(handles[rng() % handles.size()]));
    } else if (kind == 3 && !handles.empty()) {
      std::swap(handles[rng() % handles.size()], handles.back());
      handles.pop_back();
    } else if (kind == 4) {
      auto slab = cache->AllocateSlab(rng() % (4 * kPage));
      if (slab.ok()) slabs.push_back(*std::move(slab));
    } else if (!slabs.empty()) {
      std::swap(slabs[rng() % slabs.size()], slabs.back());
      slabs.pop_back();
    }
    if (handles.size() > 80) handles.clear();

    std::vector<const std::byte*> pages;
    for (const PageHandle& h : handles) pages.push_back(h.data());
    std::sort(pages.begin(), pages.end());
    const auto n_pages = std::unique(pages.begin(), pages.end()) - pages.begin();
    int64_t expected = n_pages * kPage;
    for (const auto& s : slabs) expected += s->size_bytes();
    ASSERT_EQ(cache->used_bytes(), expected);
    ASSERT_LE(cache->used_bytes(), budget);
  }
}

TEST(Cache, AsksForMemoryBackBeforeItRefuses) {
  const auto cache = *Cache::Create(400, 100);
  std::vector<PageHandle> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(*cache->AllocatePage());
  cache->SetReclaimer([&idle] {
    if (idle.empty()) return false;
    idle.pop_back();
    return true;
  });
  const auto slab = *cache->AllocateSlab(250);
  EXPECT_EQ(idle.size(), 1u);
  const PageHandle page = *cache->AllocatePage();
  EXPECT_EQ(idle.size(), 0u);
  EXPECT_EQ(cache->AllocatePage().status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace lowkey
