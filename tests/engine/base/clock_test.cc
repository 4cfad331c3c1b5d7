#include "engine/base/clock.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/set_clock.h"

namespace lowkey {
namespace {

TEST(Clock, DatesJumpWithTheMachinesClockAndSteadyTimeDoesNot) {
  const absl::Time steady = SteadyNow(), date = DateNow();
  EXPECT_LT(absl::AbsDuration(DateOf(steady) - date), absl::Minutes(1));
  for (const absl::Duration ahead : {absl::Hours(1), -absl::Hours(2), absl::ZeroDuration()}) {
    SetClockAhead(ahead);
    EXPECT_LT(absl::AbsDuration(DateNow() - date - ahead), absl::Minutes(1));
    EXPECT_LT(absl::AbsDuration(DateOf(steady) - date - ahead), absl::Minutes(1));
    EXPECT_GE(SteadyNow(), steady);
    EXPECT_LT(SteadyNow() - steady, absl::Minutes(1));
  }
}

TEST(Clock, TimeUntilIsNeverLessThanNone) {
  const absl::Time now = SteadyNow();
  EXPECT_EQ(TimeUntil(now - absl::Hours(1)), absl::ZeroDuration());
  EXPECT_LE(TimeUntil(now + absl::Hours(1)), absl::Hours(1));
  EXPECT_GT(TimeUntil(now + absl::Hours(1)), absl::Minutes(59));
  EXPECT_EQ(TimeUntil(absl::InfiniteFuture()), absl::InfiniteDuration());
  EXPECT_EQ(TimeUntil(absl::InfinitePast()), absl::ZeroDuration());
}

}  // namespace
}  // namespace lowkey
