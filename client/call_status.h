#ifndef LOWKEY_CLIENT_CALL_STATUS_H_
#define LOWKEY_CLIENT_CALL_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace lowkey {

// Converts a call's status to ours. The message passes unchanged; google.rpc.RetryInfo in the
// details becomes RetryAfterOf.
absl::Status FromGrpcStatus(const grpc::Status& status);

// The same for a call to the server at `address`; if no server answers, UNAVAILABLE says where, why
// and what to do.
absl::Status FromCallStatus(const grpc::Status& status, const std::string& address);
}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CALL_STATUS_H_
