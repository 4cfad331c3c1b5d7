#ifndef LOWKEY_SERVER_API_OPENAI_COMPLETIONS_H_
#define LOWKEY_SERVER_API_OPENAI_COMPLETIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/openai/generation_call.h"
#include "server/api/openai/options.h"

namespace lowkey {

// Reads the body of POST /v1/completions. Its writer uses the service's tokenizer, which must
// outlive it. Errors are those of ParseBody and ReadCommon, and those of TextService::Tokenize
// where the prompt's tokens are part of the answer.
absl::StatusOr<Generations> ReadCompletions(const TextService& service,
                                            const OpenAiOptions& options,
                                            const std::string& fingerprint,
                                            const RpcContext& context, const CallState& call,
                                            const std::string& body);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_COMPLETIONS_H_
