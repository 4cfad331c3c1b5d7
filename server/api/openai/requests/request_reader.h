#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_REQUEST_READER_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_REQUEST_READER_H_

#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/openai/options.h"
#include "server/api/openai/requests/fields.h"
#include "server/request/request.h"
#include "server/rpc/single_request.h"
#include "server/text/text_service.h"

namespace lowkey {

// The most choices of one call: prompts times n.
inline constexpr size_t kMaxCallChoices = 64;

// CommonRequest holds what completions and chats have in common.
struct CommonRequest {
  std::string model;          // as the client named it
  GenerationRequest request;  // without its input; its model is empty, as there is only one
  std::string answer_id;      // the body's, or the call's own
  bool is_stream = false;
  bool includes_usage = false;             // a stream's last event has the usage
  bool includes_continuous_usage = false;  // every event has it
  absl::Time deadline = absl::InfiniteFuture();
};

// Reads the fields of both endpoints: the model, sampling, stops, length, stream, and `lowkey`.
// INVALID_ARGUMENT, NOT_FOUND for the model, UNIMPLEMENTED for what is not supported. `id` is the
// call's own.
absl::Status ReadCommon(const TextService& service, const OpenAiOptions& options, const CallId& id,
                        Fields& fields, CommonRequest& common);

// Returns the tokens that Generate would feed to the model, for answers that name or count them.
// Runs on a worker; errors are those of TextService::Tokenize.
absl::StatusOr<TokenList> PromptTokens(const TextService& service, const RpcContext& context,
                                       const CallState& call,
                                       std::variant<std::string, Conversation> input);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_REQUEST_READER_H_
