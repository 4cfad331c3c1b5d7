#ifndef LOWKEY_SERVER_API_OPENAI_TOKENS_H_
#define LOWKEY_SERVER_API_OPENAI_TOKENS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/openai/options.h"
#include "server/rpc/single_request.h"
#include "server/text/text_service.h"

namespace lowkey {

// Answer POST /tokenize and /detokenize, in the forms of vLLM and of llama.cpp, from the body. They
// run on a worker. Errors are those of TextService::Tokenize and Detokenize, and those of
// ParseBody.
absl::StatusOr<std::string> TokenizeJson(const TextService& service, const OpenAiOptions& options,
                                         const RpcContext& context, const CallState& call,
                                         const std::string& body);
absl::StatusOr<std::string> DetokenizeJson(const TextService& service, const OpenAiOptions& options,
                                           const RpcContext& context, const CallState& call,
                                           const std::string& body);

// Answers GET /tokenizer_info: the special tokens' texts.
std::string TokenizerInfoJson(const TextService& service);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOKENS_H_
