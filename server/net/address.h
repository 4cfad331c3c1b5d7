#ifndef LOWKEY_SERVER_NET_ADDRESS_H_
#define LOWKEY_SERVER_NET_ADDRESS_H_

#include <string>

namespace lowkey {

// Returns whether the host is "localhost", 127.0.0.0/8 or ::1, with or without an IPv6 address's
// brackets.
bool IsLoopback(const std::string& host);

// Returns "::1" for "[::1]"; any other host as it is.
std::string WithoutBrackets(const std::string& host);

// Returns "127.0.0.1:50051", "[::1]:50051".
std::string JoinAddress(const std::string& host, int port);

// Returns an address with a port: the default, 50051, where `address` is a host alone ("::1" too).
std::string WithPort(const std::string& address);

// Returns the host part of "HOST:PORT"; the whole text if it has no port.
std::string HostOf(const std::string& address);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_ADDRESS_H_
