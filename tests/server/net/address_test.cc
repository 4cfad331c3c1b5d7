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

TEST(AddressTest, PeersOnThisMachineAreTold) {
  for (const char* peer : {"ipv4:127.0.0.1:4711", "ipv6:[::1]:4711", "ipv6:%5B::1%5D:4711"}) {
    EXPECT_TRUE(IsLoopbackPeer(peer)) << peer;
  }
  for (const char* peer : {"ipv4:10.0.0.1:4711", "ipv6:%5B2001:db8::1%5D:1", "unix:/x", "",
                           "ipv4:", "127.0.0.1:1", "ipv4:127.0.0.1.example:1"}) {
    EXPECT_FALSE(IsLoopbackPeer(peer)) << peer;
  }
}

TEST(AddressTest, TakenPortIsSaidClearly) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(descriptor, 1), 0);
  socklen_t length = sizeof(address);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length);
  const absl::Status status = CheckCanListen("127.0.0.1", ntohs(address.sin_port));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("in use"));
  close(descriptor);
  EXPECT_TRUE(CheckCanListen("127.0.0.1", 0).ok());
}

TEST(AddressTest, HostThatIsNotOursIsRefused) {
  EXPECT_FALSE(CheckCanListen("no such host", 0).ok());
  EXPECT_EQ(CheckCanListen("203.0.113.9", 0).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lowkey
