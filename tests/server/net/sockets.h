#ifndef LOWKEY_TESTS_SERVER_NET_SOCKETS_H_
#define LOWKEY_TESTS_SERVER_NET_SOCKETS_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

#include "server/net/owned_socket.h"

namespace lowkey {

// A blocking client socket, which waits for at most 30 seconds.
inline OwnedSocket MakeClientSocket(int family = AF_INET) {
  OwnedSocket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit = {30, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return socket;
}

inline bool Connect(const OwnedSocket& socket, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

inline bool ConnectV6(const OwnedSocket& socket, int port) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<in_port_t>(port));
  address.sin6_addr = in6addr_loopback;
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

inline bool SendAll(const OwnedSocket& socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Reads to the end; `error` is recv's errno, 0 at the end of the stream.
inline std::string ReceiveAll(const OwnedSocket& socket, int& error) {
  std::string all;
  char buffer[16 << 10];
  ssize_t n;
  while ((n = recv(socket.get(), buffer, sizeof(buffer), 0)) > 0) {
    all.append(buffer, static_cast<size_t>(n));
  }
  error = n == 0 ? 0 : errno;
  return all;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_NET_SOCKETS_H_
