#ifndef LOWKEY_SERVER_NET_PEER_H_
#define LOWKEY_SERVER_NET_PEER_H_

#include <sys/socket.h>

#include <string>

namespace lowkey {

// The other end of a connection.
struct Peer {
  std::string address = {};  // "127.0.0.1:4711", "[::1]:4711"
  std::string network = {};  // whose connections count together: the IPv4 address, the IPv6 /64
  bool is_loopback = false;
};

// Returns the peer at an address. An IPv4 address within IPv6 counts as the IPv4 address.
Peer PeerOf(const sockaddr_storage& address);

int PortOf(const sockaddr_storage& address);
void SetPort(int port, sockaddr_storage& address);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_PEER_H_
