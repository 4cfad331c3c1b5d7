#include "server/net/address.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lowkey {
namespace {

TEST(AddressTest, KnowsLoopback) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "example.com", "", "::2",
                           "localhost.evil.example", "127.0.0.1.evil.example"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(AddressTest, JoinsAndSplits) {
  EXPECT_EQ(JoinAddress("127.0.0.1", 5), "127.0.0.1:5");
  EXPECT_EQ(JoinAddress("::1", 5), "[::1]:5");
  EXPECT_EQ(JoinAddress("[::1]", 5), "[::1]:5");
  EXPECT_EQ(HostOf("127.0.0.1:5"), "127.0.0.1");
  EXPECT_EQ(HostOf("[::1]:5"), "::1");
  EXPECT_EQ(HostOf("host"), "host");
}

}  // namespace
}  // namespace lowkey
