#include "engine/base/contained.h"

#include <gtest/gtest.h>

#include <new>

namespace lowkey {
namespace {

TEST(ContainedTest, SaysWhetherThereWasMemory) {
  EXPECT_TRUE(RunContained([] {}));
  EXPECT_FALSE(RunContained([] { throw std::bad_alloc(); }));
}

TEST(ContainedTest, RunsInTheEnd) {
  int n_runs = 0;
  RunInTheEnd([&] {
    if (++n_runs < 3) throw std::bad_alloc();
  });
  EXPECT_EQ(n_runs, 3);
}

TEST(ContainedTest, NamesTheLack) {
  EXPECT_EQ(OutOfMemory(), absl::ResourceExhaustedError("no memory left; try again"));
}

}  // namespace
}  // namespace lowkey
