#ifndef LOWKEY_SERVER_GRPC_CONNECTION_ADDRESS_H_
#define LOWKEY_SERVER_GRPC_CONNECTION_ADDRESS_H_

#include <string>

#include "absl/status/status.h"

namespace lowkey {

// "localhost", 127.0.0.0/8 or ::1, with or without the brackets of an IPv6 address.
bool IsLoopback(const std::string& host);

// "127.0.0.1:50051", "[::1]:50051".
std::string JoinAddress(const std::string& host, int port);

// Returns an address with a port: the default, 50051, where `address` is a host alone ("::1" too).
std::string WithPort(const std::string& address);

// Whether gRPC's name of a caller, such as "ipv4:127.0.0.1:4711", is one on this machine.
bool IsLoopbackPeer(const std::string& peer);

// The host part of "HOST:PORT"; the whole when there is no port.
std::string HostOf(const std::string& address);

// Whether a server could listen there now. Worth asking before a long load, and a clearer answer
// than gRPC's. INVALID_ARGUMENT: no such host; ALREADY_EXISTS: the port is in use;
// FAILED_PRECONDITION: not permitted, or another error of the system.
absl::Status CheckCanListen(const std::string& host, int port);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CONNECTION_ADDRESS_H_
