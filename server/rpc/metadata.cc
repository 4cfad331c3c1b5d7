#include "server/rpc/metadata.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"
#include "lowkey/v1/status.pb.h"

namespace lowkey {
namespace {

constexpr char kTimeoutField[] = "grpc-timeout";
constexpr char kRetryInfoType[] = "type.googleapis.com/google.rpc.RetryInfo";

// Messages name the refused value. Clients refuse header lists of more than some 8 KiB, in which
// every byte that is not ASCII counts three times.
constexpr size_t kMaxStatusMessageBytes = 1024;

// Longer timeouts count as this one, so that no sum of a time and a timeout overflows.
constexpr absl::Duration kMaxTimeout = absl::Hours(10 * 365 * 24);

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::string Clipped(std::string message) {
  if (message.size() <= kMaxStatusMessageBytes) return message;
  size_t end = kMaxStatusMessageBytes;
  while (end > 0 && (message[end] & 0xC0) == 0x80) --end;  // between characters
  return message.substr(0, end) + "...";
}

std::optional<absl::Duration> UnitOf(char letter) {
  switch (letter) {
    case 'H':
      return absl::Hours(1);
    case 'M':
      return absl::Minutes(1);
    case 'S':
      return absl::Seconds(1);
    case 'm':
      return absl::Milliseconds(1);
    case 'u':
      return absl::Microseconds(1);
    case 'n':
      return absl::Nanoseconds(1);
    default:
      return std::nullopt;
  }
}

// Abseil's codes have gRPC's numbers; another one is UNKNOWN.
int CodeOf(const absl::Status& status) {
  const auto code = static_cast<int>(status.code());
  return code >= 0 && code <= 16 ? code : 2;
}

// Returns the bytes of a google.rpc.Status whose one detail is a google.rpc.RetryInfo.
std::string RetryDetails(const absl::Status& status, int64_t delay_ms) {
  v1::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(delay_ms / 1000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(delay_ms % 1000) * 1'000'000);
  v1::StatusDetails details;
  details.set_code(CodeOf(status));
  details.set_message(Clipped(std::string(status.message())));
  google::protobuf::Any& any = *details.add_details();
  any.set_type_url(kRetryInfoType);
  any.set_value(info.SerializeAsString());
  return details.SerializeAsString();
}

}  // namespace

bool IsRpcContentType(std::string_view content_type) {
  std::string type(content_type.substr(0, content_type.find(';')));
  absl::StripTrailingAsciiWhitespace(&type);
  absl::AsciiStrToLower(&type);
  return type == "application/grpc" || type == "application/grpc+proto";
}

absl::StatusOr<absl::Duration> ParseRpcTimeout(std::string_view text) {
  const std::string digits(text.substr(0, text.empty() ? 0 : text.size() - 1));
  const std::optional<absl::Duration> unit = text.empty() ? std::nullopt : UnitOf(text.back());
  int64_t n = 0;
  if (digits.empty() || digits.size() > 8 || !unit.has_value() ||
      !std::all_of(digits.begin(), digits.end(), IsDigit) || !absl::SimpleAtoi(digits, &n)) {
    return absl::InvalidArgumentError(
        absl::StrCat(kTimeoutField, ": ", absl::CHexEscape(std::string(text.substr(0, 32))),
                     ", expected 1 to 8 digits and H, M, S, m, u or n"));
  }
  return std::min(n * *unit, kMaxTimeout);
}

std::string EncodeStatusMessage(std::string_view message) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : Clipped(std::string(message))) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= ' ' && byte <= '~' && byte != '%') {
      encoded.push_back(c);
    } else {
      encoded.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  return encoded;
}

std::string EncodeBinaryMetadata(std::string_view bytes) {
  std::string text = absl::Base64Escape(std::string(bytes));
  text.resize(text.find_last_not_of('=') + 1);
  return text;
}

HttpFields ToStatusFields(const absl::Status& status) {
  HttpFields fields = {{"grpc-status", absl::StrCat(CodeOf(status))}};
  if (!status.message().empty()) {
    fields.push_back({"grpc-message", EncodeStatusMessage(std::string(status.message()))});
  }
  const std::optional<absl::Duration> delay = RetryAfterOf(status);
  if (!delay.has_value()) return fields;
  const int64_t ms = absl::ToInt64Milliseconds(*delay);
  fields.push_back({"grpc-status-details-bin", EncodeBinaryMetadata(RetryDetails(status, ms))});
  fields.push_back({"grpc-retry-pushback-ms", absl::StrCat(ms)});
  return fields;
}

absl::StatusOr<absl::Time> RpcDeadline(const HttpHead& head, absl::Time now) {
  absl::Time deadline = absl::InfiniteFuture();
  bool has_timeout = false;
  for (const HttpField& field : head.fields) {
    if (field.name != kTimeoutField) continue;
    if (std::exchange(has_timeout, true)) {
      return absl::InternalError(absl::StrCat(kTimeoutField, ": twice, expected it once"));
    }
    const absl::StatusOr<absl::Duration> timeout = ParseRpcTimeout(field.value);
    if (!timeout.ok()) return absl::InternalError(timeout.status().message());
    deadline = now + *timeout;
  }
  return deadline;
}

}  // namespace lowkey
