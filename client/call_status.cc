#include "client/call_status.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"
#include "lowkey/v1/status.pb.h"

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

constexpr char kRetryInfoType[] = "type.googleapis.com/google.rpc.RetryInfo";
// Longer waits are not believed.
constexpr int64_t kMaxRetrySeconds = 86400;

std::optional<absl::Duration> RetryDelayOf(const std::string& bytes) {
  v1::StatusDetails details;
  if (bytes.empty() || !details.ParseFromString(bytes)) return std::nullopt;
  for (const google::protobuf::Any& any : details.details()) {
    v1::RetryInfo info;
    if (any.type_url() != kRetryInfoType || !info.ParseFromString(any.value())) continue;
    const int64_t seconds = info.retry_delay().seconds();
    if (seconds < 0 || seconds > kMaxRetrySeconds) return std::nullopt;
    return absl::Seconds(seconds) + absl::Nanoseconds(info.retry_delay().nanos());
  }
  return std::nullopt;
}

}  // namespace

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kUnknown;
  for (const auto& [ours, theirs] : kCodes) {
    if (theirs == status.error_code()) code = ours;
  }
  const absl::Status result(code, status.error_message());
  const std::optional<absl::Duration> delay = RetryDelayOf(status.error_details());
  return delay.has_value() ? WithRetryAfter(result, *delay) : result;
}

absl::Status FromCallStatus(const grpc::Status& status, const std::string& address) {
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    return absl::UnauthenticatedError(absl::StrCat(
        address, ": ", status.error_message(), " (--token-file or LOWKEY_TOKEN names the token)"));
  }
  const std::string message = status.error_message();
  const auto has = [&message](const char* part) { return message.find(part) != std::string::npos; };
  // These words mean that the other side ended a handshake, or an answer.
  const bool is_cut = has("Socket closed") || has("Connection reset");
  const bool is_connection = status.error_code() == grpc::StatusCode::UNAVAILABLE &&
                             (has("connect") || has("DNS") || is_cut);
  if (!is_connection) return FromGrpcStatus(status);
  // gRPC nests its causes; the last one is the system's: "...: Connection refused".
  const size_t colon = message.rfind(": ");
  const char* advice = "Start one with `lowkey serve`, or name it with --server HOST:PORT";
  if (is_cut) {
    advice =
        "It has ended, or it serves TLS, which needs --tls-ca and may need --tls-cert and "
        "--tls-key";
  }
  if (has("handshake failed")) {
    advice = "Its certificate must be signed by one of --tls-ca and name the host of --server";
  }
  return absl::UnavailableError(absl::StrCat(
      is_cut ? "the connection broke to " : "no server answers at ", address, " (",
      colon == std::string::npos ? message : message.substr(colon + 2), "). ", advice));
}

}  // namespace lowkey
