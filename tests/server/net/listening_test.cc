#include "server/net/listening.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace lowkey {
namespace {

TEST(ListeningTest, TakenPortIsSaidClearly) {
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

TEST(ListeningTest, HostThatIsNotOursIsRefused) {
  EXPECT_FALSE(CheckCanListen("no such host", 0).ok());
  EXPECT_EQ(CheckCanListen("203.0.113.9", 0).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lowkey
