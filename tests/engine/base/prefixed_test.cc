#include "engine/base/prefixed.h"

#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(PrefixedTest, AnErrorKeepsItsCodeAndSaysWhere) {
  const absl::Status status = Prefixed("file", absl::NotFoundError("gone"));
  EXPECT_EQ(status, absl::NotFoundError("file: gone"));
  const absl::StatusOr<int> result = Prefixed("file", absl::StatusOr<int>(status));
  EXPECT_EQ(result.status(), absl::NotFoundError("file: file: gone"));
}

TEST(PrefixedTest, SuccessPasses) {
  EXPECT_TRUE(Prefixed("file", absl::OkStatus()).ok());
  EXPECT_EQ(*Prefixed("file", absl::StatusOr<int>(3)), 3);
}

}  // namespace
}  // namespace lowkey
