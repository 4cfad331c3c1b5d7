#include "engine/kernels/device/repeated_work.h"

#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(RepeatedWork, IsKeptAtTheSecondSight) {
  RepeatedWork<int> work;
  EXPECT_EQ(work.Find(1), nullptr);
  EXPECT_FALSE(work.IsSecond(1));
  EXPECT_FALSE(work.IsSecond(2));
  EXPECT_TRUE(work.IsSecond(1));
  EXPECT_EQ(work.Keep(1, 10), std::nullopt);
  ASSERT_NE(work.Find(1), nullptr);
  EXPECT_EQ(*work.Find(1), 10);
  EXPECT_EQ(work.Find(2), nullptr);
}

TEST(RepeatedWork, ForgetsTheLeastRecentlyUsed) {
  RepeatedWork<int> work;
  const int n = RepeatedWork<int>::kMostKept;
  for (int i = 0; i < n; ++i) EXPECT_EQ(work.Keep(i, 100 + i), std::nullopt);
  EXPECT_NE(work.Find(0), nullptr);
  EXPECT_EQ(work.Keep(n, 100 + n), 101);
  EXPECT_NE(work.Find(0), nullptr);
  EXPECT_EQ(work.Find(1), nullptr);
  int n_kept = 0;
  work.Each([&](int) { ++n_kept; });
  EXPECT_EQ(n_kept, n);
}

TEST(RepeatedWork, RemembersManyKeysButNotAll) {
  RepeatedWork<int> work;
  const int n = RepeatedWork<int>::kMostSeen;
  for (int i = 0; i <= n; ++i) EXPECT_FALSE(work.IsSecond(i));
  EXPECT_FALSE(work.IsSecond(0)) << "the oldest, and now the newest";
  EXPECT_TRUE(work.IsSecond(n));
  EXPECT_FALSE(work.IsSecond(1)) << "gone for key 0";
}

}  // namespace
}  // namespace lowkey
