#include "server/net/peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/net/address.h"

namespace lowkey {
namespace {

Peer PeerOfV4(const in_addr& address, int port) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return {JoinAddress(text, port), text, (ntohl(address.s_addr) >> 24) == 127};
}

Peer PeerOfV6(const in6_addr& address, int port) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &address, text, sizeof(text));
  // A site has the last 64 bits to itself.
  in6_addr network = address;
  std::memset(&network.s6_addr[8], 0, 8);
  char network_text[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, &network, network_text, sizeof(network_text));
  return {JoinAddress(text, port), absl::StrCat(network_text, "/64"),
          IN6_IS_ADDR_LOOPBACK(&address) != 0};
}

// sockaddr_storage stands for the type that its family says.
template <typename T>
T As(const sockaddr_storage& address) {
  T result;
  std::memcpy(&result, &address, sizeof(result));
  return result;
}

}  // namespace

Peer PeerOf(const sockaddr_storage& address) {
  const int port = PortOf(address);
  if (address.ss_family == AF_INET) return PeerOfV4(As<sockaddr_in>(address).sin_addr, port);
  const in6_addr v6 = As<sockaddr_in6>(address).sin6_addr;
  if (!IN6_IS_ADDR_V4MAPPED(&v6)) return PeerOfV6(v6, port);
  in_addr v4;
  std::memcpy(&v4, &v6.s6_addr[12], sizeof(v4));
  return PeerOfV4(v4, port);
}

int PortOf(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET ? As<sockaddr_in>(address).sin_port
                                            : As<sockaddr_in6>(address).sin6_port);
}

void SetPort(int port, sockaddr_storage& address) {
  const in_port_t in_network_order = htons(static_cast<in_port_t>(port));
  const size_t offset = address.ss_family == AF_INET ? offsetof(sockaddr_in, sin_port)
                                                     : offsetof(sockaddr_in6, sin6_port);
  std::memcpy(reinterpret_cast<char*>(&address) + offset, &in_network_order,
              sizeof(in_network_order));
}

}  // namespace lowkey
