// Caches in a device's memory: pages and slabs of one arena, and what happens when its free bytes
// are in pieces.
#include "engine/cache/arena.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "engine/cache/cache.h"
#include "gtest/gtest.h"
#include "tests/engine/cache/test_memory.h"

namespace lowkey {
namespace {

constexpr int64_t kPage = 8192;

class ArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<Cache> Make(int64_t budget_bytes) {
    return Cache::Create(budget_bytes, kPage, &memory_).value();
  }
  absl::Status Take(Cache& cache, int64_t size_bytes, std::shared_ptr<Slab>& to) {
    return cache.FitIn([&] {
      auto slab = cache.AllocateSlab(size_bytes);
      if (slab.ok()) to = *std::move(slab);
      return slab.status();
    });
  }
  absl::Status Take(Cache& cache, PageHandle& to) {
    return cache.FitIn([&] {
      auto page = cache.AllocatePage();
      if (page.ok()) to = *std::move(page);
      return page.status();
    });
  }

  TestMemory memory_;
};

TEST_F(ArenaTest, NothingIsAllocatedAfterTheCache) {
  const auto cache = Make(10 * kPage);
  std::shared_ptr<Slab> slab = cache->AllocateSlab(3 * kPage).value();
  const PageHandle page = cache->AllocatePage().value();
  slab->Shrink(kPage);
  EXPECT_EQ(cache->used_bytes(), 2 * kPage);
  slab = cache->AllocateSlab(5 * kPage).value();
  EXPECT_EQ(memory_.n_allocations, 1);
  EXPECT_EQ(memory_.n_copies, 0);
}

TEST_F(ArenaTest, ASlabShrinksInPlaceAndItsRestIsUsedAgain) {
  const auto cache = Make(8 * kPage);
  const auto slab = cache->AllocateSlab(8 * kPage).value();
  std::memset(slab->data(), 1, 4 * kPage);
  slab->Shrink(4 * kPage);
  const auto rest = cache->AllocateSlab(4 * kPage).value();
  std::memset(rest->data(), 2, 4 * kPage);
  for (int64_t i = 0; i < 4 * kPage; ++i) ASSERT_EQ(slab->data()[i], std::byte{1});
}

TEST_F(ArenaTest, ASlabInTheLowestPlaceIsFreedForPages) {
  const auto cache = Make(4 * kPage);
  auto slab = cache->AllocateSlab(4 * kPage).value();
  EXPECT_FALSE(cache->AllocatePage().ok());
  slab = nullptr;
  std::vector<PageHandle> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(cache->AllocatePage().value());
  EXPECT_FALSE(cache->AllocateSlab(1).ok());
}

TEST_F(ArenaTest, ScatteredPagesMoveTogetherForASlab) {
  const auto cache = Make(16 * kPage);
  std::vector<PageHandle> pages;
  for (int i = 0; i < 16; ++i) {
    pages.push_back(cache->AllocatePage().value());
    std::memset(pages.back().data(), i, kPage);
  }
  for (int i = 0; i < 16; i += 2) pages[i] = {};
  const auto refused = cache->AllocateSlab(8 * kPage);
  EXPECT_EQ(refused.status(), absl::ResourceExhaustedError(
                                  "cache: 65536 of 131072 bytes used, no slab of 65536 bytes left "
                                  "in one piece"));
  std::shared_ptr<Slab> slab;
  ASSERT_TRUE(Take(*cache, 8 * kPage, slab).ok());
  std::memset(slab->data(), 0xee, 8 * kPage);
  EXPECT_LE(memory_.n_copies, 4);
  for (int i = 1; i < 16; i += 2) {
    for (int64_t at = 0; at < kPage; ++at) {
      ASSERT_EQ(pages[i].data()[at], static_cast<std::byte>(i)) << at;
    }
  }
}

TEST_F(ArenaTest, SlabsMoveTogetherForPages) {
  const auto cache = Make(16 * kPage);
  std::vector<std::shared_ptr<Slab>> slabs;
  for (int i = 0; i < 8; ++i) {
    slabs.push_back(cache->AllocateSlab(2 * kPage).value());
    std::memset(slabs.back()->data(), i, 2 * kPage);
  }
  for (int i = 0; i < 8; i += 2) slabs[i] = nullptr;
  std::vector<PageHandle> pages(8);
  for (PageHandle& page : pages) {
    ASSERT_TRUE(Take(*cache, page).ok());
    std::memset(page.data(), 0xee, kPage);
  }
  for (int i = 1; i < 8; i += 2) {
    for (int64_t at = 0; at < 2 * kPage; ++at) {
      ASSERT_EQ(slabs[i]->data()[at], static_cast<std::byte>(i)) << at;
    }
  }
}

TEST_F(ArenaTest, WhatIsPastTheBudgetIsRefusedWithoutMoving) {
  const auto cache = Make(4 * kPage);
  std::vector<PageHandle> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(cache->AllocatePage().value());
  std::shared_ptr<Slab> slab;
  EXPECT_TRUE(absl::IsResourceExhausted(Take(*cache, kPage, slab)));
  EXPECT_EQ(memory_.n_copies, 0);
}

// Random loads of pages and of slabs of several sizes, as of closed pages, principal blocks and
// states: whatever the budget has is given, and no bytes are lost or shared.
TEST_F(ArenaTest, GivesAllOfTheBudgetInAnyOrder) {
  const int64_t sizes[] = {kPage / 2 + 1, 4096, 5 * kPage + 13, 40 * kPage, 9 * kPage};
  const int64_t budget = 200 * kPage;
  const auto cache = Make(budget);
  std::minstd_rand rng(5);
  std::vector<std::pair<PageHandle, unsigned char>> pages;
  std::vector<std::pair<std::shared_ptr<Slab>, unsigned char>> slabs;
  int64_t most = 0;
  const auto fill = [](std::byte* at, int64_t n, unsigned char with) {
    std::memset(at, with, static_cast<size_t>(n));
  };
  for (int i = 0; i < 6000; ++i) {
    const auto tag = static_cast<unsigned char>(rng() % 251);
    if (rng() % 2 == 0) {
      PageHandle page;
      const bool fits = kPage <= budget - cache->used_bytes();
      ASSERT_EQ(Take(*cache, page).ok(), fits) << i;
      if (fits) fill(page.data(), kPage, tag);
      if (fits) pages.emplace_back(std::move(page), tag);
    } else {
      const int64_t size = sizes[rng() % 5];
      std::shared_ptr<Slab> slab;
      const bool fits = size <= budget - cache->used_bytes();
      ASSERT_EQ(Take(*cache, size, slab).ok(), fits) << i;
      if (fits) fill(slab->data(), size, tag);
      if (fits) slabs.emplace_back(std::move(slab), tag);
    }
    most = std::max(most, cache->used_bytes());
    while (cache->used_bytes() > budget * 9 / 10 && rng() % 3 != 0) {
      const bool is_page = slabs.empty() || (!pages.empty() && rng() % 4 != 0);
      if (is_page) {
        std::swap(pages[rng() % pages.size()], pages.back());
        const std::byte* data = pages.back().first.data();
        for (int64_t at = 0; at < kPage; at += 509) {
          ASSERT_EQ(static_cast<unsigned char>(data[at]), pages.back().second);
        }
        pages.pop_back();
      } else {
        auto& [slab, tag_of] = slabs[rng() % slabs.size()];
        for (int64_t at = 0; at < slab->size_bytes(); at += 509) {
          ASSERT_EQ(static_cast<unsigned char>(slab->data()[at]), tag_of);
        }
        if (rng() % 3 == 0 && slab->size_bytes() > 2 * kPage) {
          slab->Shrink(slab->size_bytes() / 2);
          continue;
        }
        slab = nullptr;
        std::erase_if(slabs, [](const auto& one) { return one.first == nullptr; });
      }
    }
  }
  EXPECT_GE(most, budget * 95 / 100);
  EXPECT_EQ(memory_.n_allocations, 1);
}

}  // namespace
}  // namespace lowkey
