#include "server/front/strangers.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/testing/failing_new.h"

namespace lowkey {
namespace {

TEST(StrangersTest, NamesTheOldestOfAllAndOfANetwork) {
  Strangers strangers;
  EXPECT_EQ(strangers.Oldest(), std::nullopt);
  strangers.Add(1, "a");
  strangers.Add(2, "b");
  strangers.Add(3, "b");
  EXPECT_EQ(strangers.Oldest(), 1u);
  EXPECT_EQ(strangers.OldestOf("b"), 2u);
  EXPECT_EQ(strangers.OldestOf("c"), std::nullopt);
  strangers.Remove(1, "a");
  strangers.Remove(1, "a");
  strangers.Remove(2, "b");
  EXPECT_EQ(strangers.Oldest(), 3u);
  EXPECT_EQ(strangers.OldestOf("a"), std::nullopt);
  EXPECT_EQ(strangers.OldestOf("b"), 3u);
  strangers.Remove(3, "b");
  EXPECT_EQ(strangers.Oldest(), std::nullopt);
}

// A connection that ends for a lack of memory must not stay among them.
TEST(StrangersTest, RemovalTakesNoMemory) {
  const std::string network = "2001:db8:1111:2222:3333:4444:5555::/64";
  Strangers strangers;
  strangers.Add(1, network);
  FailAllocation(1);
  strangers.Remove(1, network);
  FailAllocation(0);
  EXPECT_EQ(strangers.Oldest(), std::nullopt);
}

}  // namespace
}  // namespace lowkey
