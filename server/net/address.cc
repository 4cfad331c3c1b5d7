#include "server/net/address.h"

#include <arpa/inet.h>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr int kDefaultPort = 50051;

}  // namespace

std::string WithoutBrackets(const std::string& host) {
  const bool has_brackets = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  return has_brackets ? host.substr(1, host.size() - 2) : host;
}

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

}  // namespace lowkey
