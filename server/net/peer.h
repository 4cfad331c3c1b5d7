#ifndef LOWKEY_SERVER_NET_PEER_H_
#define LOWKEY_SERVER_NET_PEER_H_

#include <sys/socket.h>

#include "server/net/transport.h"

namespace lowkey {

// An IPv4 address within IPv6 counts as the IPv4 address.
Peer PeerOf(const sockaddr_storage& address);

int PortOf(const sockaddr_storage& address);
void SetPort(int port, sockaddr_storage& address);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_PEER_H_
