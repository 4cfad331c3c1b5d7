#ifndef LOWKEY_SERVER_GRPC_CONNECTION_SERVER_CREDENTIALS_H_
#define LOWKEY_SERVER_GRPC_CONNECTION_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "server/auth/credentials.h"

namespace lowkey {

// Receives refused calls, on gRPC's threads. `method` is the caller's own text.
using OnRefusedCall = std::function<void(std::string_view method, const absl::Status& status)>;

// Returns the credentials of a ServerBuilder's port: TLS as `credentials` say, and
// CallGuard::CheckMethod on every call's headers, before gRPC looks for the method or reads the
// message. So every service is guarded, a caller without a token learns nothing, not even the
// methods, and connections in clear are guarded in the same way.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Credentials& credentials,
                                                               OnRefusedCall on_refused);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CONNECTION_SERVER_CREDENTIALS_H_
