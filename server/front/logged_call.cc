#include "server/front/logged_call.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/front/counted_exchange.h"
#include "server/http/trace_fields.h"

namespace lowkey {
namespace {

absl::StatusCode CodeOfHttp(int http_status) {
  switch (http_status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return absl::StatusCode::kAlreadyExists;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 499:
      return absl::StatusCode::kCancelled;
    case 503:
      return absl::StatusCode::kUnavailable;
    case 504:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return http_status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status StatusOfCode(std::string_view code) {
  int http_status = 0;
  if (absl::SimpleAtoi(std::string(code), &http_status)) {
    if (http_status < 400) return absl::OkStatus();
    return absl::Status(CodeOfHttp(http_status), absl::StrCat("HTTP ", http_status));
  }
  constexpr int kLastCode = static_cast<int>(absl::StatusCode::kUnauthenticated);
  for (int i = 0; i <= kLastCode; ++i) {
    const auto candidate = static_cast<absl::StatusCode>(i);
    if (absl::StatusCodeToString(candidate) == code) return absl::Status(candidate, "");
  }
  return absl::UnknownError("");
}

bool IsLeftOutOfLog(std::string_view path) {
  return path == "/metrics" || (path.starts_with("/lowkey/v1/") && path != "/lowkey/v1/score");
}

std::unique_ptr<HttpHandler> MakeLogged(HttpExchange& exchange, RequestLog& log,
                                        const std::string& tenant, const MakeUnlogged& make) {
  const auto is_logged = std::make_shared<bool>(false);
  const HttpHead& head = exchange.head();
  RequestLogEntry entry = {head.path, tenant, absl::OkStatus(), {}, {}, ReadTraceContext(head)};
  return MakeCounted(
      exchange,
      [is_logged, &log, entry = std::move(entry), start = absl::Now()](std::string_view,
                                                                       std::string_view code) {
        if (*is_logged) return;
        RequestLogEntry ended = entry;
        ended.status = StatusOfCode(code);
        ended.duration = absl::Now() - start;
        log.WriteWithoutSpan(ended);
      },
      [&make, &is_logged](HttpExchange& counted) { return make(counted, is_logged); });
}

}  // namespace lowkey
