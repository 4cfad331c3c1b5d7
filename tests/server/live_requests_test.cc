#include "server/live_requests.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

TEST(LiveRequestsTest, RefusesAnIdThatIsTaken) {
  auto live = std::make_shared<LiveRequests>();
  const auto first = live->Take("a");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->id(), "a");
  const auto second = live->Take("a");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find("request_id: \"a\""), std::string::npos);
  EXPECT_TRUE(live->Take("b").ok());
}

TEST(LiveRequestsTest, GivesAnIdAgainAfterReleaseOrDestruction) {
  auto live = std::make_shared<LiveRequests>();
  auto claim = live->Take("a");
  ASSERT_TRUE(claim.ok());
  (*claim)->Release();
  auto again = live->Take("a");
  ASSERT_TRUE(again.ok());
  claim->reset();  // must not give back what the second claim holds
  EXPECT_FALSE(live->Take("a").ok());
  again->reset();
  EXPECT_TRUE(live->Take("a").ok());
}

TEST(LiveRequestsTest, ClaimMayOutliveTheOwner) {
  auto live = std::make_shared<LiveRequests>();
  auto claim = live->Take("a");
  live.reset();
  (*claim)->Release();
}

}  // namespace
}  // namespace lowkey
