#include "client/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "token-that-only-reads-0";

TEST(ChannelTest, TokenInClearStaysOnThisMachine) {
  for (const char* address : {"127.0.0.1:50051", "localhost:1", "[::1]:50051"}) {
    EXPECT_TRUE(CheckToken({address, kToken}).ok()) << address;
  }
  for (const char* address : {"10.0.0.5:50051", "example.com:50051", "localhost.example.com:1",
                              "dns:///example.com", "0.0.0.0:50051"}) {
    const absl::Status status = CheckToken({address, kToken});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << address;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--tls-ca"));
    EXPECT_TRUE(CheckToken({address, kToken, ClientTls{"PEM"}}).ok());
    EXPECT_TRUE(CheckToken({address}).ok()) << "nothing to protect";
  }
}

TEST(ChannelTest, WhatIsNoTokenIsRefusedUnquoted) {
  for (const std::string& token :
       {std::string(), std::string("secret"), std::string("secret\nwith a second line"),
        std::string(300, 's')}) {
    const absl::Status status = CheckToken({"127.0.0.1:1", token});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("sec")));
  }
}

}  // namespace
}  // namespace lowkey
