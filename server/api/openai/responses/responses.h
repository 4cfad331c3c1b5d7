#ifndef LOWKEY_SERVER_API_OPENAI_RESPONSES_RESPONSES_H_
#define LOWKEY_SERVER_API_OPENAI_RESPONSES_RESPONSES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/openai/generation_call.h"
#include "server/api/openai/options.h"

namespace lowkey {

// Reads the body of POST /v1/responses. Nothing is kept of an answer, so that fields that need an
// earlier one are refused. Errors are those of ParseBody, ReadCommon and ReadInput.
absl::StatusOr<Generations> ReadResponses(const TextService& service, const OpenAiOptions& options,
                                          const RpcContext& context, const std::string& body);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_RESPONSES_RESPONSES_H_
