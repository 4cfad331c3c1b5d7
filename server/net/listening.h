#ifndef LOWKEY_SERVER_NET_LISTENING_H_
#define LOWKEY_SERVER_NET_LISTENING_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/net/owned_socket.h"

namespace lowkey {

// Opens sockets that listen at one port, on every address of the host ("localhost" has two). Port 0
// picks. INVALID_ARGUMENT: no such host; ALREADY_EXISTS: the port is in use; FAILED_PRECONDITION:
// not permitted, or another error of the system.
absl::StatusOr<std::vector<OwnedSocket>> ListenAt(const std::string& host, int port);

// Returns OK if a server could listen there now, which a long load should know before it begins.
// Errors are those of ListenAt.
absl::Status CheckCanListen(const std::string& host, int port);

// Returns the port at which a socket listens.
int BoundPort(const OwnedSocket& socket);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_LISTENING_H_
