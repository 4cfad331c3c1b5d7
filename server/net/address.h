#ifndef LOWKEY_SERVER_NET_ADDRESS_H_
#define LOWKEY_SERVER_NET_ADDRESS_H_

#include <string>

#include "absl/status/status.h"

namespace lowkey {

// Whether the host is "localhost", 127.0.0.0/8 or ::1, with or without an IPv6 address's brackets.
bool IsLoopback(const std::string& host);

// Returns "127.0.0.1:50051", "[::1]:50051".
std::string JoinAddress(const std::string& host, int port);

// Returns an address with a port: the default, 50051, where `address` is a host alone ("::1" too).
std::string WithPort(const std::string& address);

// Whether gRPC's name of a caller, such as "ipv4:127.0.0.1:4711", means this machine.
bool IsLoopbackPeer(const std::string& peer);

// Returns the host part of "HOST:PORT"; the whole text if it has no port.
std::string HostOf(const std::string& address);

// Returns OK if a server could listen there now: before a long load, and more clearly than gRPC.
// INVALID_ARGUMENT: no such host; ALREADY_EXISTS: the port is in use;
// FAILED_PRECONDITION: not permitted, or another error of the system.
absl::Status CheckCanListen(const std::string& host, int port);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_ADDRESS_H_
