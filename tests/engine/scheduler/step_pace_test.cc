#include "engine/scheduler/step_pace.h"

#include "gtest/gtest.h"

namespace lowkey {
namespace {

// A machine whose steps take `fixed` and `each` a row, with as many rows as are allowed.
int64_t RowsAfter(StepPace pace, absl::Duration fixed, absl::Duration each, int n_steps) {
  for (int i = 0; i < n_steps; ++i) {
    pace.Note(pace.max_rows(), fixed + each * pace.max_rows());
  }
  return pace.max_rows();
}

TEST(StepPace, SettlesWhereAStepTakesTheTarget) {
  const StepPace pace(absl::Milliseconds(100), 512);
  EXPECT_NEAR(RowsAfter(pace, absl::ZeroDuration(), absl::Milliseconds(1), 20), 100, 1);
  EXPECT_NEAR(RowsAfter(pace, absl::Milliseconds(20), absl::Milliseconds(1), 40), 80, 2);
}

TEST(StepPace, FastMachineReachesTheMostAndSlowOneKeepsTheLeast) {
  const StepPace pace(absl::Milliseconds(100), 512);
  EXPECT_EQ(RowsAfter(pace, absl::ZeroDuration(), absl::Microseconds(1), 10), 512);
  EXPECT_EQ(RowsAfter(pace, absl::Seconds(1), absl::Seconds(1), 10), StepPace::kMinRows);
  EXPECT_EQ(RowsAfter(pace, absl::ZeroDuration(), absl::ZeroDuration(), 10), 512);
}

TEST(StepPace, OneSlowStepCountsAtOnceAndIsForgottenInAFew) {
  StepPace pace(absl::Milliseconds(100), 512);
  for (int i = 0; i < 20; ++i) pace.Note(pace.max_rows(), absl::Milliseconds(pace.max_rows()));
  const int64_t settled = pace.max_rows();
  pace.Note(settled, absl::Milliseconds(400));
  EXPECT_LE(pace.max_rows(), settled / 3);
  for (int i = 0; i < 4; ++i) pace.Note(pace.max_rows(), absl::Milliseconds(pace.max_rows()));
  EXPECT_NEAR(pace.max_rows(), settled, 2);
}

TEST(StepPace, StepsBelowTheLimitDoNotRaiseIt) {
  StepPace pace(absl::Milliseconds(100), 512);
  const int64_t before = pace.max_rows();
  for (int i = 0; i < 10; ++i) pace.Note(1, absl::Milliseconds(1));
  EXPECT_EQ(pace.max_rows(), before);
}

TEST(StepPace, MostRowsMayBeFewerThanTheLeast) {
  StepPace pace(absl::Milliseconds(100), 4);
  EXPECT_EQ(pace.max_rows(), 4);
  pace.Note(4, absl::Seconds(10));
  EXPECT_EQ(pace.max_rows(), 4);
}

}  // namespace
}  // namespace lowkey
