#include "engine/cache/slab_regions.h"

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kLarge = int64_t{40} << 20;  // more than a region

std::byte* DataOf(const SlabRegions::Lease& lease) { return lease.arena->SlabAt(*lease.place); }

bool IsZero(const SlabRegions::Lease& lease) {
  const std::byte* data = DataOf(lease);
  for (int64_t i = 0; i < lease.place->size_bytes; ++i) {
    if (data[i] != std::byte{0}) return false;
  }
  return true;
}

TEST(SlabRegions, SlabsAreZerosOfTheirOwnInAnyOrder) {
  SlabRegions regions;
  std::mt19937 rng(3);
  std::vector<SlabRegions::Lease> held;
  for (int i = 0; i < 400; ++i) {
    if (held.size() > 20 || (rng() % 3 == 0 && !held.empty())) {
      std::swap(held[rng() % held.size()], held.back());
      regions.Free(held.back());
      held.pop_back();
      continue;
    }
    const auto lease = regions.Take(static_cast<int64_t>(rng() % 100'000));
    ASSERT_TRUE(lease.ok()) << lease.status();
    ASSERT_TRUE(IsZero(*lease));
    std::memset(DataOf(*lease), static_cast<int>(held.size()) + 1, lease->place->size_bytes);
    held.push_back(*lease);
    // Nobody wrote into a neighbor.
    for (const SlabRegions::Lease& other : held) {
      const std::byte* data = DataOf(other);
      if (other.place->size_bytes == 0) continue;
      ASSERT_EQ(data[0], data[other.place->size_bytes - 1]);
    }
  }
  for (const SlabRegions::Lease& lease : held) regions.Free(lease);
}

TEST(SlabRegions, EmptyRegionsGoBackButOne) {
  SlabRegions regions;
  std::vector<SlabRegions::Lease> held;
  for (int i = 0; i < 3; ++i) held.push_back(*regions.Take(kLarge));
  EXPECT_EQ(regions.n_regions(), 3);
  for (const SlabRegions::Lease& lease : held) regions.Free(lease);
  EXPECT_EQ(regions.n_regions(), 1);
  const auto again = *regions.Take(kLarge);
  EXPECT_EQ(regions.n_regions(), 1);
  EXPECT_TRUE(IsZero(again));
  regions.Free(again);
}

TEST(SlabRegions, RefusesWhatTheMachineDoesNotHave) {
  SlabRegions regions;
  EXPECT_EQ(regions.Take(int64_t{1} << 47).status().code(), absl::StatusCode::kResourceExhausted);
  const auto lease = regions.Take(100);
  ASSERT_TRUE(lease.ok());
  regions.Free(*lease);
}

TEST(SlabRegions, GiveBackTakesNothingFromSlabs) {
  if (SlabRegions::kRegionBytes == 0) GTEST_SKIP() << "every slab is a region under the sanitizer";
  const auto page = static_cast<int64_t>(SystemPageBytes());
  SlabRegions regions;
  // From high addresses to low: the middle slab shares a page of the system with either neighbor.
  const auto a = *regions.Take(page / 2), b = *regions.Take(3 * page), c = *regions.Take(page / 2);
  for (const auto& lease : {a, b, c}) {
    std::memset(DataOf(lease), 1, static_cast<size_t>(lease.place->size_bytes));
  }
  EXPECT_EQ(regions.written_bytes(), 4 * page);
  std::byte* const gap = DataOf(b);
  regions.Free(b);
  EXPECT_EQ(regions.written_bytes(), 4 * page);
  regions.GiveBack(4 * page);
  EXPECT_EQ(gap[page], std::byte{1}) << "so much may be written";
  regions.GiveBack(0);
  EXPECT_EQ(regions.written_bytes(), 2 * page) << "the pages that the neighbors have";
  EXPECT_EQ(gap[page], std::byte{0});
  for (const auto& lease : {a, c}) {
    EXPECT_EQ(DataOf(lease)[0], std::byte{1});
    EXPECT_EQ(DataOf(lease)[lease.place->size_bytes - 1], std::byte{1});
  }
  const auto again = *regions.Take(3 * page);
  EXPECT_EQ(DataOf(again), gap);
  EXPECT_TRUE(IsZero(again)) << "the pages of the neighbors had the old contents";
  EXPECT_EQ(regions.written_bytes(), 4 * page);
  for (const auto& lease : {a, again, c}) regions.Free(lease);
  regions.GiveBack(0);
  EXPECT_EQ(regions.written_bytes(), 0);
}

TEST(SlabRegions, WhatASlabIsShrunkByCanGoBack) {
  if (SlabRegions::kRegionBytes == 0) GTEST_SKIP() << "every slab is a region under the sanitizer";
  const auto page = static_cast<int64_t>(SystemPageBytes());
  SlabRegions regions;
  const auto slab = *regions.Take(8 * page);
  std::memset(DataOf(slab), 1, static_cast<size_t>(8 * page));
  regions.Shrink(page + 1, slab);
  regions.GiveBack(0);
  EXPECT_EQ(regions.written_bytes(), 2 * page);
  EXPECT_EQ(DataOf(slab)[page], std::byte{1});
  regions.Free(slab);
}

TEST(SlabRegions, ARegionThatGoesBackIsWrittenNoLonger) {
  SlabRegions regions;
  const auto a = *regions.Take(kLarge), b = *regions.Take(kLarge);
  EXPECT_EQ(regions.written_bytes(), 2 * kLarge);
  regions.Free(a);
  EXPECT_EQ(regions.written_bytes(), 2 * kLarge);
  regions.Free(b);
  EXPECT_EQ(regions.written_bytes(), kLarge);
  regions.GiveBack(0);
  EXPECT_EQ(regions.written_bytes(), 0);
}

TEST(SlabRegions, SmallSlabsShareARegion) {
  if (SlabRegions::kRegionBytes == 0) GTEST_SKIP() << "every slab is a region under the sanitizer";
  SlabRegions regions;
  const auto a = *regions.Take(1000), b = *regions.Take(0), c = *regions.Take(1 << 20);
  EXPECT_EQ(regions.n_regions(), 1);
  EXPECT_NE(DataOf(a), DataOf(b));
  for (const auto& lease : {a, b, c}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(DataOf(lease)) % 64, 0u);
    regions.Free(lease);
  }
}

}  // namespace
}  // namespace lowkey
