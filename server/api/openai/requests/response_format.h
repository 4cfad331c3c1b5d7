#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_RESPONSE_FORMAT_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_RESPONSE_FORMAT_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/api/openai/requests/fields.h"
#include "server/request/response_format.h"

namespace lowkey {

// Reads OpenAI's `response_format`, and what vLLM calls `structured_outputs` and `guided_*`: at most
// one form. `body` is the text that `fields` was parsed from. INVALID_ARGUMENT naming the field; what
// a form means is checked where it is compiled.
absl::Status ReadResponseFormat(Fields& fields, const std::string& body,
                                std::optional<ResponseFormat>& format);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_RESPONSE_FORMAT_H_
