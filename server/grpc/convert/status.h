#ifndef LOWKEY_SERVER_GRPC_CONVERT_STATUS_H_
#define LOWKEY_SERVER_GRPC_CONVERT_STATUS_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace lowkey {

// Convert our errors to gRPC's and back; no other place does. Messages pass unchanged, RetryAfterOf
// as google.rpc.RetryInfo in the details; a code that has no counterpart becomes UNKNOWN.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// The same for a call to the server at `address`; if no server answers, UNAVAILABLE says where, why
// and what to do.
absl::Status FromCallStatus(const grpc::Status& status, const std::string& address);

// Finishes a unary call whose response is already written.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CONVERT_STATUS_H_
