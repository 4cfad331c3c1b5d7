#include "engine/base/retry_after.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

TEST(RetryAfterTest, TravelsWithTheStatus) {
  const absl::Status status =
      WithRetryAfter(absl::ResourceExhaustedError("queue: full"), absl::Milliseconds(1500));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "queue: full");
  EXPECT_EQ(RetryAfterOf(status), absl::Milliseconds(1500));
}

TEST(RetryAfterTest, IsNeverNothing) {
  const absl::Status status = WithRetryAfter(absl::ResourceExhaustedError("x"), absl::Seconds(-1));
  EXPECT_EQ(RetryAfterOf(status), absl::Milliseconds(1));
}

TEST(RetryAfterTest, IsAbsentUnlessAdded) {
  EXPECT_EQ(RetryAfterOf(absl::ResourceExhaustedError("x")), std::nullopt);
  EXPECT_EQ(RetryAfterOf(absl::OkStatus()), std::nullopt);
}

}  // namespace
}  // namespace lowkey
