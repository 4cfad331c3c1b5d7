#include "server/front/logged_call.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "server/api/http/api_error.h"
#include "server/front/counted_exchange.h"
#include "server/http/trace_fields.h"

namespace lowkey {
namespace {

// Returns the status that an exchange's code stands for: the name of a gRPC status ("NOT_FOUND"),
// or an HTTP status as text ("404").
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

}  // namespace

bool IsLeftOutOfLog(std::string_view path) {
  return path == "/metrics" || (path.starts_with("/lowkey/v1/") && path != "/lowkey/v1/score");
}

std::unique_ptr<HttpHandler> MakeLogged(HttpExchange& exchange, RequestLog& log,
                                        const std::string& tenant, const std::string& request_id,
                                        const MakeUnlogged& make) {
  const auto is_logged = std::make_shared<bool>(false);
  const HttpHead& head = exchange.head();
  RequestLogEntry entry = {.method = head.path,
                           .tenant = tenant,
                           .status = absl::OkStatus(),
                           .request_id = request_id,
                           .trace = ReadTraceContext(head)};
  return MakeCounted(
      exchange,
      [is_logged, &log, entry = std::move(entry), start = SteadyNow()](std::string_view,
                                                                       std::string_view code) {
        if (*is_logged) return;
        RequestLogEntry ended = entry;
        ended.status = StatusOfCode(code);
        ended.duration = SteadyNow() - start;
        ended.ended = DateNow();
        log.WriteWithoutSpan(ended);
      },
      [&make, &is_logged](HttpExchange& counted) { return make(counted, is_logged); });
}

}  // namespace lowkey
