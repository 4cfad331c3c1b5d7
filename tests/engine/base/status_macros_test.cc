#include "engine/base/status_macros.h"

#include <memory>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}

absl::StatusOr<int> Quarter(int x) {
  LK_ASSIGN_OR_RETURN(const int half, Half(x));
  LK_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

absl::Status CheckBoth(const absl::Status& a, const absl::Status& b, int& n_passed) {
  LK_RETURN_IF_ERROR(a);
  ++n_passed;
  LK_RETURN_IF_ERROR(b);
  ++n_passed;
  return absl::OkStatus();
}

TEST(AssignOrReturn, PassesValuesOnAndErrorsOut) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(5).status().message(), "odd");
}

TEST(AssignOrReturn, MovesWhatCannotBeCopied) {
  const auto unwrap = []() -> absl::StatusOr<int> {
    LK_ASSIGN_OR_RETURN(const auto p, absl::StatusOr<std::unique_ptr<int>>(new int(4)));
    return *p;
  };
  EXPECT_EQ(*unwrap(), 4);
}

TEST(ReturnIfError, StopsAtTheFirstError) {
  int n_passed = 0;
  EXPECT_TRUE(CheckBoth(absl::OkStatus(), absl::OkStatus(), n_passed).ok());
  EXPECT_EQ(n_passed, 2);
  EXPECT_EQ(CheckBoth(absl::OkStatus(), absl::InternalError("b"), n_passed).message(), "b");
  EXPECT_EQ(n_passed, 3);
}

TEST(CheckDeathTest, NamesTheCondition) { EXPECT_DEATH(LK_CHECK(1 == 2), "check failed: 1 == 2"); }

}  // namespace
}  // namespace lowkey
