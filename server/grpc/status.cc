#include "server/grpc/status.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr std::pair<absl::StatusCode, grpc::StatusCode> kCodes[] = {
    {absl::StatusCode::kOk, grpc::StatusCode::OK},
    {absl::StatusCode::kCancelled, grpc::StatusCode::CANCELLED},
    {absl::StatusCode::kUnknown, grpc::StatusCode::UNKNOWN},
    {absl::StatusCode::kInvalidArgument, grpc::StatusCode::INVALID_ARGUMENT},
    {absl::StatusCode::kDeadlineExceeded, grpc::StatusCode::DEADLINE_EXCEEDED},
    {absl::StatusCode::kNotFound, grpc::StatusCode::NOT_FOUND},
    {absl::StatusCode::kAlreadyExists, grpc::StatusCode::ALREADY_EXISTS},
    {absl::StatusCode::kPermissionDenied, grpc::StatusCode::PERMISSION_DENIED},
    {absl::StatusCode::kResourceExhausted, grpc::StatusCode::RESOURCE_EXHAUSTED},
    {absl::StatusCode::kFailedPrecondition, grpc::StatusCode::FAILED_PRECONDITION},
    {absl::StatusCode::kAborted, grpc::StatusCode::ABORTED},
    {absl::StatusCode::kOutOfRange, grpc::StatusCode::OUT_OF_RANGE},
    {absl::StatusCode::kUnimplemented, grpc::StatusCode::UNIMPLEMENTED},
    {absl::StatusCode::kInternal, grpc::StatusCode::INTERNAL},
    {absl::StatusCode::kUnavailable, grpc::StatusCode::UNAVAILABLE},
    {absl::StatusCode::kDataLoss, grpc::StatusCode::DATA_LOSS},
    {absl::StatusCode::kUnauthenticated, grpc::StatusCode::UNAUTHENTICATED},
};

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  for (const auto& [ours, theirs] : kCodes) {
    if (ours == status.code()) code = theirs;
  }
  return grpc::Status(code, std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kUnknown;
  for (const auto& [ours, theirs] : kCodes) {
    if (theirs == status.error_code()) code = ours;
  }
  return absl::Status(code, status.error_message());
}

absl::Status FromCallStatus(const grpc::Status& status, const std::string& address) {
  const std::string message = status.error_message();
  const auto has = [&message](const char* part) { return message.find(part) != std::string::npos; };
  const bool is_connection = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                             (has("connect") || has("DNS") || has("Socket closed"));
  if (!is_connection) return FromGrpcStatus(status);
  // gRPC nests its causes, the last is the system's: "...: Connection refused".
  const size_t colon = message.rfind(": ");
  return absl::UnavailableError(
      absl::StrCat("no server answers at ", address, " (",
                   colon == std::string::npos ? message : message.substr(colon + 2),
                   "). Start one with `lowkey serve`, or name it with --server HOST:PORT"));
}

}  // namespace lowkey
