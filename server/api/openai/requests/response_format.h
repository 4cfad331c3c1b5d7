#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_RESPONSE_FORMAT_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_RESPONSE_FORMAT_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/api/openai/requests/fields.h"
#include "server/request/response_format.h"

namespace lowkey {

// Reads OpenAI's `response_format`, and what vLLM calls `structured_outputs` and `guided_*`: at
// most one form. `body` is the text that `fields` was parsed from. INVALID_ARGUMENT naming the
// field; what a form means is checked where it is compiled.
absl::Status ReadResponseFormat(Fields& fields, const std::string& body,
                                std::optional<ResponseFormat>& format);

// Reads the `format` of what /v1/responses calls `text`: that object's fields and its text in the
// body. Errors are those of ReadResponseFormat.
absl::Status ReadTextFormat(Fields& fields, std::string_view text,
                            std::optional<ResponseFormat>& format);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_RESPONSE_FORMAT_H_
