#include "server/net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace lowkey {
namespace {

constexpr int kDefaultPort = 50051;

std::string WithoutBrackets(const std::string& host) {
  const bool has_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

absl::Status SystemError(const std::string& address, int error) {
  if (error == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(
        address, ": the port is in use by another program, expected a free one (--port 0 picks)"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(address, ": cannot listen: ", std::strerror(error)));
}

}  // namespace

bool IsLoopback(const std::string& host) {
  const std::string bare = WithoutBrackets(host);
  if (bare == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, bare.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, bare.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string JoinAddress(const std::string& host, int port) {
  const std::string bare = WithoutBrackets(host);
  if (bare.find(':') != std::string::npos) return absl::StrCat("[", bare, "]:", port);
  return absl::StrCat(bare, ":", port);
}

std::string WithPort(const std::string& address) {
  in6_addr v6;
  const bool is_bare_v6 = inet_pton(AF_INET6, address.c_str(), &v6) == 1;
  const bool has_port = HostOf(address) != WithoutBrackets(address);
  return address.empty() || (has_port && !is_bare_v6) ? address
                                                      : JoinAddress(address, kDefaultPort);
}

std::string HostOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  const size_t bracket = address.rfind(']');
  const bool has_port =
      colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return WithoutBrackets(has_port ? address.substr(0, colon) : address);
}

bool IsLoopbackPeer(const std::string& peer) {
  // gRPC escapes the brackets of an IPv6 address.
  const std::string plain = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const bool is_ip = absl::StartsWith(plain, "ipv4:") || absl::StartsWith(plain, "ipv6:");
  return is_ip && IsLoopback(HostOf(plain.substr(5)));
}

absl::Status CheckCanListen(const std::string& host, int port) {
  const std::string address = JoinAddress(host, port);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(WithoutBrackets(host).c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(address, ": no such host: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, &freeaddrinfo);
  const int descriptor = socket(found->ai_family, SOCK_STREAM, 0);
  if (descriptor < 0) return SystemError(address, errno);
  // A connection that is still closing must not look like a listening server.
  const int one = 1;
  setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  const bool bound =
      bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 && listen(descriptor, 1) == 0;
  const int bind_error = errno;
  close(descriptor);
  return bound ? absl::OkStatus() : SystemError(address, bind_error);
}

}  // namespace lowkey
