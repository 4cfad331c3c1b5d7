#include "server/net/listening.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/net/address.h"
#include "server/net/peer.h"

namespace lowkey {
namespace {

constexpr int kBacklog = 1024;
constexpr int kTriesForOnePort = 8;

struct AddressListFreer {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressListFreer>;

absl::StatusOr<AddressList> Resolve(const std::string& host, const std::string& name) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), "0", &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": no such host: ", gai_strerror(error)));
  }
  return AddressList(found);
}

absl::Status SystemError(const std::string& name, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(
        name, ": the port is in use by another program, expected a free one, or 0 to pick one"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(name, ": cannot listen: ", std::strerror(error)));
}

absl::StatusOr<OwnedSocket> ListenOn(const addrinfo& address, int port, const std::string& name) {
  OwnedSocket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return SystemError(name, errno);
  // Connections of an earlier process that are still closing keep nobody from the port.
  const int on = 1, off = 0;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage bound = {};
  std::memcpy(&bound, address.ai_addr, std::min<size_t>(address.ai_addrlen, sizeof(bound)));
  SetPort(port, bound);
  // "::" takes IPv4 too, whatever the system's default is.
  if (address.ai_family == AF_INET6) {
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&bound), address.ai_addrlen) != 0 ||
      listen(socket.get(), kBacklog) != 0) {
    return SystemError(name, errno);
  }
  return socket;
}

// Listens on every address of a host ("localhost" has two), all at the same port.
absl::StatusOr<std::vector<OwnedSocket>> ListenOnAll(const addrinfo* addresses, int port,
                                                     const std::string& name) {
  std::vector<OwnedSocket> sockets;
  absl::Status refusal = absl::OkStatus();
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    const int wanted = sockets.empty() ? port : BoundPort(sockets[0]);
    absl::StatusOr<OwnedSocket> socket = ListenOn(*address, wanted, name);
    if (absl::IsAlreadyExists(socket.status())) return socket.status();
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else {
      refusal.Update(socket.status());
    }
  }
  // A machine may lack IPv6, and its name have such an address all the same.
  if (sockets.empty()) return refusal;
  return sockets;
}

}  // namespace

absl::StatusOr<std::vector<OwnedSocket>> ListenAt(const std::string& host, int port) {
  const std::string name = JoinAddress(host, port);
  LK_ASSIGN_OR_RETURN(const AddressList addresses, Resolve(WithoutBrackets(host), name));
  absl::StatusOr<std::vector<OwnedSocket>> sockets = ListenOnAll(addresses.get(), port, name);
  // The port that one address has picked may be in use at another.
  for (int i = 1; i < kTriesForOnePort && port == 0 && !sockets.ok(); ++i) {
    sockets = ListenOnAll(addresses.get(), port, name);
  }
  return sockets;
}

absl::Status CheckCanListen(const std::string& host, int port) {
  return ListenAt(host, port).status();
}

int BoundPort(const OwnedSocket& socket) {
  sockaddr_storage address = {};
  socklen_t n_bytes = sizeof(address);
  getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &n_bytes);
  return PortOf(address);
}

}  // namespace lowkey
