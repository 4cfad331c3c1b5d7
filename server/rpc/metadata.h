#ifndef LOWKEY_SERVER_RPC_METADATA_H_
#define LOWKEY_SERVER_RPC_METADATA_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/http/exchange.h"

namespace lowkey {

// Returns whether a content-type is application/grpc, application/grpc+proto, or either with
// parameters.
bool IsRpcContentType(std::string_view content_type);

// Reads "grpc-timeout": one to eight digits and one of H M S m u n. INVALID_ARGUMENT otherwise.
// More than ten years count as ten years.
absl::StatusOr<absl::Duration> ParseRpcTimeout(std::string_view text);

// Writes a status message as gRPC does: bytes outside of space to tilde, and "%", as %XX. Longer
// messages are cut to 1 KiB between UTF-8 characters first.
std::string EncodeStatusMessage(std::string_view message);

// Returns the bytes in base64 without padding.
std::string EncodeBinaryMetadata(std::string_view bytes);

// Returns the fields that end a call: grpc-status, grpc-message, grpc-status-details-bin where the
// status has details, and grpc-retry-pushback-ms where RetryAfterOf says when to come again.
HttpFields ToStatusFields(const absl::Status& status);

// Returns the call's deadline by its grpc-timeout; InfiniteFuture without one. INTERNAL for one
// that is malformed or occurs twice.
absl::StatusOr<absl::Time> RpcDeadline(const HttpHead& head, absl::Time now);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_METADATA_H_
