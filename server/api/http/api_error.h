#ifndef LOWKEY_SERVER_API_HTTP_API_ERROR_H_
#define LOWKEY_SERVER_API_HTTP_API_ERROR_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/exchange.h"

namespace lowkey {

// Errors of the HTTP APIs, in OpenAI's form:
//   {"error": {"message": "...", "type": "...", "param": "temperature" or null, "code": "..."}}
// The HTTP status and the code follow from the status's own code, unless WithErrorCode says more.

// Adds the code that clients see, and the HTTP status unless it is 0. gRPC does not send them.
absl::Status WithErrorCode(absl::Status status, std::string_view code, int http_status = 0);

struct ApiError {
  int http_status = 500;
  HttpFields fields;  // retry-after and the like, without the body's
  std::string json;   // the object above
};
// `status` must not be OK. The message's first words, where they name a field, become `param`.
ApiError ToApiError(const absl::Status& status);

// Returns the status code that an error with this HTTP status had: where ToApiError gives it for
// several, the most general.
absl::StatusCode CodeOfHttp(int http_status);

// Answers with the error, and reads nothing of the request.
std::unique_ptr<HttpHandler> MakeApiRefusal(HttpExchange& exchange, const absl::Status& status,
                                            HttpFields fields = {});

// AnswerBody says whether an answer has its body: those to HEAD have none.
enum class AnswerBody { kSent, kLeftOut };

// Answers an exchange that has not begun.
void AnswerJson(HttpExchange& exchange, AnswerBody body, int http_status, const std::string& json,
                HttpFields fields = {});

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_API_ERROR_H_
