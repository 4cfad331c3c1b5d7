#ifndef LOWKEY_SERVER_GRPC_CONNECTION_SERVER_CREDENTIALS_H_
#define LOWKEY_SERVER_GRPC_CONNECTION_SERVER_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "server/auth/credentials.h"

namespace lowkey {

// Told of a call that was refused, from gRPC's threads. `method` is what the caller said.
using OnRefusedCall = std::function<void(std::string_view method, const absl::Status& status)>;

// For a ServerBuilder's port: TLS as `credentials` say, and CallGuard::CheckMethod on every call's
// headers, before gRPC looks for its method or reads its message. So no service can be without it,
// a caller without a token learns nothing, not even what methods there are, and connections in
// clear are guarded in the same way.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Credentials& credentials,
                                                               OnRefusedCall on_refused);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CONNECTION_SERVER_CREDENTIALS_H_
