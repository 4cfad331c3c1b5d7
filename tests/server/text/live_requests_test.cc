#include "server/text/live_requests.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"

namespace lowkey {
namespace {

TEST(LiveRequestsTest, RefusesAnIdThatIsTaken) {
  auto live = std::make_shared<LiveRequests>();
  const auto first = live->Take({}, "a");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->id(), "a");
  const auto second = live->Take({}, "a");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(second.status().message().find("request_id: \"a\""), std::string::npos);
  EXPECT_TRUE(live->Take({}, "b").ok());
}

TEST(LiveRequestsTest, GivesAnIdAgainAfterReleaseOrDestruction) {
  auto live = std::make_shared<LiveRequests>();
  auto claim = live->Take({}, "a");
  ASSERT_TRUE(claim.ok());
  (*claim)->Release();
  auto again = live->Take({}, "a");
  ASSERT_TRUE(again.ok());
  claim->reset();  // must not give back what the second claim holds
  EXPECT_FALSE(live->Take({}, "a").ok());
  again->reset();
  EXPECT_TRUE(live->Take({}, "a").ok());
}

// A minute has passed when the test says so.
class QuotaTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<LiveRequests::Claim>> Take(const Tenant& tenant) {
    return live_->Take(tenant, absl::StrCat("id-", n_taken_++));
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  const std::shared_ptr<LiveRequests> live_ =
      std::make_shared<LiveRequests>([this] { return now_; });
  int n_taken_ = 0;
};

TEST_F(QuotaTest, LiveRequestsAreCountedPerTenant) {
  const Tenant two{.name = "two", .max_live_requests = 2}, free{.name = "free"};
  auto first = Take(two), second = Take(two);
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status refused = Take(two).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "quota: 2 live requests of tenant two, expected at most 2 at a time");
  EXPECT_EQ(RetryAfterOf(refused), absl::Seconds(1));
  EXPECT_TRUE(Take(free).ok());
  (*first)->Release();
  EXPECT_TRUE(Take(two).ok());
}

TEST_F(QuotaTest, TokensComeBackEvenly) {
  const Tenant tenant{.name = "a", .tokens_per_minute = 600};
  auto claim = Take(tenant);
  ASSERT_TRUE(claim.ok());
  (*claim)->Charge(599);
  EXPECT_TRUE(Take(tenant).ok()) << "one is left";
  (*claim)->Charge(101);
  const absl::Status refused = Take(tenant).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  // 100 too many, and one more to begin: at 10 a second.
  const absl::Duration delay = RetryAfterOf(refused).value_or(absl::ZeroDuration());
  EXPECT_GE(delay, absl::Milliseconds(10100));
  EXPECT_LE(delay, absl::Milliseconds(10101));
  now_ += delay - absl::Milliseconds(50);
  EXPECT_FALSE(Take(tenant).ok());
  now_ += absl::Milliseconds(50);
  EXPECT_TRUE(Take(tenant).ok());
}

TEST_F(QuotaTest, CallThatHasBegunGoesOnWithoutTokens) {
  const Tenant tenant{.name = "a", .max_live_requests = 2, .tokens_per_minute = 600};
  const auto first = Take(tenant);
  live_->Charge(tenant, 10'000);
  EXPECT_FALSE(Take(tenant).ok());
  const auto second = live_->Take(tenant, "second", /*is_begun=*/true);
  EXPECT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(live_->Take(tenant, "third", /*is_begun=*/true).ok()) << "two live ones";
}

TEST_F(QuotaTest, NoMoreThanAMinutesTokensGather) {
  const Tenant tenant{.name = "a", .tokens_per_minute = 600};
  ASSERT_TRUE(Take(tenant).ok());
  now_ += absl::Hours(24);
  ASSERT_TRUE(Take(tenant).ok());
  live_->Charge(tenant, 600);
  EXPECT_FALSE(Take(tenant).ok());
  live_->Charge(tenant, -600);
  EXPECT_TRUE(Take(tenant).ok()) << "given back";
}

TEST_F(QuotaTest, ClockThatGoesBackTakesNothing) {
  const Tenant tenant{.name = "a", .tokens_per_minute = 600};
  ASSERT_TRUE(Take(tenant).ok());
  live_->Charge(tenant, 600);
  now_ -= absl::Hours(1);
  EXPECT_FALSE(Take(tenant).ok());
  now_ += absl::Hours(1) + absl::Seconds(1);
  EXPECT_TRUE(Take(tenant).ok());
}

TEST_F(QuotaTest, NewLimitsHoldFromTheNextRequestOn) {
  Tenant tenant{.name = "a", .tokens_per_minute = 60};
  ASSERT_TRUE(Take(tenant).ok());
  live_->Charge(tenant, 120);
  tenant.tokens_per_minute = std::nullopt;
  EXPECT_TRUE(Take(tenant).ok());
  tenant.tokens_per_minute = 6000;
  EXPECT_FALSE(Take(tenant).ok());
  now_ += absl::Seconds(1);
  EXPECT_TRUE(Take(tenant).ok());
}

TEST(LiveRequestsTest, TenantsHaveTheirOwnIds) {
  auto live = std::make_shared<LiveRequests>();
  const auto ours = live->Take({.name = "ours"}, "a");
  const auto theirs = live->Take({.name = "theirs"}, "a");
  EXPECT_TRUE(ours.ok() && theirs.ok());
  EXPECT_FALSE(live->Take({.name = "ours"}, "a").ok());
}

TEST(LiveRequestsTest, ClaimMayOutliveTheOwner) {
  auto live = std::make_shared<LiveRequests>();
  auto claim = live->Take({}, "a");
  live.reset();
  (*claim)->Release();
}

}  // namespace
}  // namespace lowkey
