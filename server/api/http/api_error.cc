#include "server/api/http/api_error.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"
#include "server/api/http/json_writer.h"

namespace lowkey {
namespace {

constexpr char kPayload[] = "lowkey/http-error";
constexpr size_t kMaxErrorBytes = 1024;
constexpr size_t kMaxParamBytes = 128;

struct Form {
  int http_status;
  std::string code;
};

Form FormOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return {400, "invalid_value"};
    case absl::StatusCode::kUnimplemented:
      return {400, "unsupported_parameter"};
    case absl::StatusCode::kOutOfRange:
      return {400, "context_length_exceeded"};
    case absl::StatusCode::kUnauthenticated:
      return {401, "invalid_api_key"};
    case absl::StatusCode::kPermissionDenied:
      return {403, "insufficient_permissions"};
    case absl::StatusCode::kNotFound:
      return {404, "model_not_found"};
    case absl::StatusCode::kAlreadyExists:
      return {409, "request_id_in_use"};
    case absl::StatusCode::kResourceExhausted:
      return {429, "rate_limit_exceeded"};
    case absl::StatusCode::kUnavailable:
      return {503, "unavailable"};
    case absl::StatusCode::kDeadlineExceeded:
      return {504, "timeout"};
    case absl::StatusCode::kCancelled:
      return {499, "cancelled"};
    default:
      return {500, "internal_error"};
  }
}

Form FormOf(const absl::Status& status) {
  Form form = FormOf(status.code());
  if (absl::IsResourceExhausted(status) && absl::StartsWith(status.message(), "queue")) {
    form.code = "queue_full";
  }
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return form;
  const std::string text(*payload);
  const size_t space = text.find(' ');
  int http_status = 0;
  if (absl::SimpleAtoi(text.substr(0, space), &http_status) && http_status != 0) {
    form.http_status = http_status;
  }
  form.code = text.substr(space + 1);
  return form;
}

std::string_view TypeOf(int http_status) {
  if (http_status >= 500) return "server_error";
  if (http_status == 401) return "authentication_error";
  if (http_status == 403) return "permission_error";
  if (http_status == 404) return "not_found_error";
  return http_status == 429 ? "rate_limit_error" : "invalid_request_error";
}

// Messages begin with the field's name and a colon.
std::optional<std::string_view> ParamOf(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos || colon == 0 || colon > kMaxParamBytes) return std::nullopt;
  const std::string_view name = message.substr(0, colon);
  const auto is_of_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_-.[]").find(c) != std::string_view::npos;
  };
  return std::all_of(name.begin(), name.end(), is_of_name) ? std::optional(name) : std::nullopt;
}

std::string JsonOf(const Form& form, std::string_view message) {
  std::string json;
  JsonWriter writer(json);
  writer.BeginObject().Key("error").BeginObject();
  writer.Key("message").Text(message.substr(0, kMaxErrorBytes));
  writer.Key("type").Text(TypeOf(form.http_status));
  const std::optional<std::string_view> param =
      form.http_status < 500 && form.http_status != 401 ? ParamOf(message) : std::nullopt;
  writer.Key("param");
  param.has_value() ? writer.Text(*param) : writer.Null();
  writer.Key("code").Text(form.code).EndObject().EndObject();
  return json;
}

// OpenAI's clients try 408, 409, 429 and everything from 500 on again unless they are told not to.
HttpFields RetryFields(int http_status, const absl::Status& status) {
  HttpFields fields;
  if (http_status == 429 || http_status == 503) {
    const absl::Duration delay = RetryAfterOf(status).value_or(absl::Seconds(1));
    const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(delay, absl::Seconds(1)));
    fields.push_back({"retry-after", absl::StrCat(std::max<int64_t>(seconds, 1))});
    fields.push_back({"retry-after-ms", absl::StrCat(absl::ToInt64Milliseconds(delay))});
  } else if (http_status == 409 || http_status >= 500) {
    fields.push_back({"x-should-retry", "false"});
  }
  if (http_status == 401) fields.push_back({"www-authenticate", "Bearer"});
  return fields;
}

class Refusal final : public HttpHandler {
 public:
  Refusal(HttpExchange& exchange, ApiError error) : exchange_(exchange), error_(std::move(error)) {}

  void OnHead() override {
    const bool is_head = exchange_.head().method == "HEAD";
    AnswerJson(exchange_, is_head ? AnswerBody::kLeftOut : AnswerBody::kSent, error_.http_status,
               error_.json, std::move(error_.fields));
  }
  void OnBody(std::string_view) override {}
  void OnBodyEnd() override {}

 private:
  HttpExchange& exchange_;
  ApiError error_;
};

}  // namespace

absl::StatusCode CodeOfHttp(int http_status) {
  if (http_status >= 400 && http_status != FormOf(absl::StatusCode::kInternal).http_status) {
    for (int i = 1; i <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++i) {
      const auto code = static_cast<absl::StatusCode>(i);
      if (FormOf(code).http_status == http_status) return code;
    }
  }
  return http_status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
}

absl::Status WithErrorCode(absl::Status status, std::string_view code, int http_status) {
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(http_status, " ", std::string(code))));
  return status;
}

ApiError ToApiError(const absl::Status& status) {
  const Form form = FormOf(status);
  const std::string_view message(status.message().data(), status.message().size());
  return {form.http_status, RetryFields(form.http_status, status), JsonOf(form, message)};
}

std::unique_ptr<HttpHandler> MakeApiRefusal(HttpExchange& exchange, const absl::Status& status,
                                            HttpFields fields) {
  ApiError error = ToApiError(status);
  error.fields.insert(error.fields.end(), fields.begin(), fields.end());
  return std::make_unique<Refusal>(exchange, std::move(error));
}

void AnswerJson(HttpExchange& exchange, AnswerBody body, int http_status, const std::string& json,
                HttpFields fields) {
  fields.push_back({"content-type", "application/json"});
  fields.push_back({"content-length", absl::StrCat(json.size())});
  fields.push_back({"cache-control", "no-store"});
  fields.push_back({"x-content-type-options", "nosniff"});
  if (body == AnswerBody::kLeftOut) return exchange.StartAndEnd(http_status, fields);
  exchange.Start(http_status, fields);
  exchange.Write(json);
  exchange.End({});
}

}  // namespace lowkey
