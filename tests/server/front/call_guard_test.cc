#include "server/front/call_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CallGuardTest : public ::testing::Test {
 protected:
  CallGuardTest() {
    WriteFileOrDie(path_, R"({"tenants": [{"name": "a", "weight": 3, "tokens": [)"
                          R"({"token": "token-that-only-reads-0", "rights": ["read"]}]}]})");
  }

  const TempDirectory directory_;
  const std::string path_ = directory_.File("tokens.json");
};

TEST(RightForTest, NamesWholeServicesAndSingleMethods) {
  EXPECT_EQ(RightFor("/lowkey.v1.Generation/Generate"), Right::kGenerate);
  EXPECT_EQ(RightFor("/lowkey.v1.Generation/SomethingNew"), Right::kGenerate);
  EXPECT_EQ(RightFor("/lowkey.v1.Models/GetModel"), Right::kRead);
  EXPECT_EQ(RightFor("/lowkey.v1.Admin/Stats"), Right::kRead);
  EXPECT_EQ(RightFor("/lowkey.v1.Admin/Drain"), Right::kAdmin);
  EXPECT_EQ(RightFor("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), Right::kRead);
  EXPECT_EQ(RightFor("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            Right::kRead);
  EXPECT_EQ(RightFor("/metrics"), Right::kRead);
  for (const char* path :
       {"/lowkey/v1/model", "/lowkey/v1/crossover", "/lowkey/v1/cache", "/lowkey/v1/stats"}) {
    EXPECT_EQ(RightFor(path), Right::kRead) << path;
  }
}

TEST(RightForTest, WhatNobodyThoughtOfIsForAdmins) {
  for (const char* method :
       {"", "/page", "//", "/lowkey/v1", "/lowkey.v1.Admin/StatsReset", "/lowkey.v1.Admin/",
        "/lowkey.v1.GenerationX/Y", "lowkey.v1.Generation/Generate",
        "/grpc.health.v1.HealthX/Check", "/new.Service/Method", "/healthz", "/metrics/"}) {
    EXPECT_EQ(RightFor(method), Right::kAdmin) << method;
  }
}

TEST(RightForTest, HealthAndThePageNeedNone) {
  EXPECT_EQ(RightFor("/"), std::nullopt);
  EXPECT_EQ(RightFor("/health"), std::nullopt);
  EXPECT_EQ(RightFor("/ready"), std::nullopt);
  EXPECT_EQ(RightFor("/grpc.health.v1.Health/Check"), std::nullopt);
  EXPECT_EQ(RightFor("/grpc.health.v1.Health/Watch"), std::nullopt);
}

TEST_F(CallGuardTest, WithoutTokensEveryoneIsTheTenantWithoutAName) {
  const CallGuard guard(nullptr);
  EXPECT_FALSE(guard.asks_for_tokens());
  const auto tenant = guard.Check(Right::kAdmin, {});
  ASSERT_TRUE(tenant.ok());
  EXPECT_EQ(tenant->name, "");
  EXPECT_EQ(tenant->max_live_requests, std::nullopt);
}

TEST_F(CallGuardTest, TokenNamesItsTenant) {
  const CallGuard guard(*OpenTokens(path_, [](const std::string&) {}));
  const std::string header = "Bearer token-that-only-reads-0";
  const auto tenant = guard.Check(Right::kRead, {header});
  ASSERT_TRUE(tenant.ok()) << tenant.status();
  EXPECT_EQ(tenant->name, "a");
  EXPECT_EQ(tenant->weight, 3);
  EXPECT_EQ(guard.Check(Right::kGenerate, {header}).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(CallGuardTest, RefusalsDoNotQuoteTheToken) {
  const CallGuard guard(*OpenTokens(path_, [](const std::string&) {}));
  for (const std::string& header : {std::string("Bearer secret"), std::string("secret")}) {
    const absl::Status status = guard.Check(Right::kRead, {header}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(status.message()), HasSubstr("authorization"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
  }
}

}  // namespace
}  // namespace lowkey
