// A tenant's bytes are counted right while a device moves its pages and slabs.
#include <memory>
#include <vector>

#include "engine/runtime/prefix_cache.h"
#include "gtest/gtest.h"
#include "tests/engine/cache/test_memory.h"

namespace lowkey {
namespace {

constexpr int64_t kPage = 4096;

struct OneSlab {
  std::shared_ptr<Slab> slab;
  void VisitSlabs(SlabVisitor visit) const {
    if (slab != nullptr) visit(*slab);
  }
};

TEST(PrefixMemoryTest, PrefixesThatMovedAreForgottenWhole) {
  TestMemory memory;
  const auto cache = Cache::Create(16 * kPage, kPage, &memory).value();
  PrefixMemory counted;
  std::vector<PageHandle> pages;
  for (int i = 0; i < 12; ++i) pages.push_back(cache->AllocatePage().value());
  SequenceCache sequence;
  sequence.state.As<OneSlab>().slab = cache->AllocateSlab(kPage).value();
  for (int i = 1; i < 12; i += 2) sequence.pages.push_back(pages[i]);
  {
    HeldPrefix all(sequence, counted), some(sequence, counted);
    all.Count(nullptr);
    some.Count(nullptr);
    EXPECT_EQ(counted.n_bytes(), 7 * kPage);
    pages.clear();
    sequence = {};
    std::shared_ptr<Slab> slab;
    ASSERT_TRUE(cache
                    ->FitIn([&] {
                      auto taken = cache->AllocateSlab(8 * kPage);
                      if (taken.ok()) slab = *std::move(taken);
                      return taken.status();
                    })
                    .ok());
    EXPECT_GT(memory.n_copies, 0) << "nothing had to move";
    EXPECT_EQ(counted.n_bytes(), 7 * kPage);
  }
  EXPECT_EQ(counted.n_bytes(), 0);
}

// Atp trims the slabs of its blocks after the prefix that holds them was saved.
TEST(PrefixMemoryTest, SlabsThatShrinkAreCountedAgain) {
  const auto cache = Cache::Create(16 * kPage, kPage, nullptr).value();
  PrefixMemory counted;
  SequenceCache sequence;
  sequence.pages = {cache->AllocatePage().value()};
  const auto slab = cache->AllocateSlab(kPage).value();
  sequence.state.As<OneSlab>().slab = slab;
  {
    HeldPrefix held(sequence, counted);
    held.Count(nullptr);
    slab->Shrink(640);
    counted.Recount();
    EXPECT_EQ(counted.n_bytes(), kPage + 640);
    HeldPrefix gone(sequence, counted);
    gone.Count(nullptr);
  }
  EXPECT_EQ(counted.n_bytes(), 0);
  counted.Recount();
  EXPECT_EQ(counted.n_bytes(), 0);
}

// Each page of a long prompt has a prefix: what the shorter one holds is not counted again.
TEST(PrefixMemoryTest, LongerPrefixesCountWhatTheyAdd) {
  const auto cache = Cache::Create(16 * kPage, kPage, nullptr).value();
  PrefixMemory counted;
  SequenceCache sequence;
  sequence.pages = {cache->AllocatePage().value(), PageHandle(), cache->AllocatePage().value()};
  auto shorter = std::make_unique<HeldPrefix>(sequence, counted);
  shorter->Count(nullptr);
  EXPECT_EQ(counted.n_bytes(), 2 * kPage);
  sequence.pages.push_back(cache->AllocatePage().value());
  sequence.pages[1] = cache->AllocatePage().value();
  sequence.state.As<OneSlab>().slab = cache->AllocateSlab(kPage).value();
  auto longer = std::make_unique<HeldPrefix>(sequence, counted);
  longer->Count(shorter.get());
  EXPECT_EQ(counted.n_bytes(), 5 * kPage);
  longer.reset();
  EXPECT_EQ(counted.n_bytes(), 2 * kPage);
  longer = std::make_unique<HeldPrefix>(sequence, counted);
  longer->Count(shorter.get());
  shorter.reset();  // at the index's end it may go first
  longer.reset();
  EXPECT_EQ(counted.n_bytes(), 0);
}

}  // namespace
}  // namespace lowkey
