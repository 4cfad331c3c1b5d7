#include "engine/base/threads/short_work.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lowkey {
namespace {

constexpr absl::Duration kLong = absl::Milliseconds(1);

TEST(GiveWay, YieldsOnceToShortWorkThatLasts) {
  EXPECT_FALSE(GiveWay());
  {
    const ShortWork first;
    absl::SleepFor(kLong);
    EXPECT_TRUE(GiveWay());
    EXPECT_FALSE(GiveWay());
    {
      const ShortWork second;
      absl::SleepFor(kLong);
      EXPECT_TRUE(GiveWay());
    }
    absl::SleepFor(kLong);
    EXPECT_TRUE(GiveWay());
  }
  absl::SleepFor(kLong);
  EXPECT_FALSE(GiveWay());
}

}  // namespace
}  // namespace lowkey
