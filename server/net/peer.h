#ifndef LOWKEY_SERVER_NET_PEER_H_
#define LOWKEY_SERVER_NET_PEER_H_

#include <sys/socket.h>

#include <string>

#include "server/net/transport.h"

namespace lowkey {

// An IPv4 address within IPv6 counts as the IPv4 address.
Peer PeerOf(const sockaddr_storage& address);

int PortOf(const sockaddr_storage& address);
void SetPort(int port, sockaddr_storage& address);

// Returns "::1" for "[::1]"; any other host as it is.
std::string WithoutBrackets(const std::string& host);

// Returns "127.0.0.1:50051", "[::1]:50051" for a host without brackets.
std::string AddressText(const std::string& host, int port);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_PEER_H_
