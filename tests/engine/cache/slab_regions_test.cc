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
