#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_ANSWER_PLAN_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_ANSWER_PLAN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/api/openai/options.h"
#include "server/api/openai/requests/tools.h"
#include "server/api/openai/tools/tool_format.h"
#include "server/api/openai/tools/tool_parser.h"
#include "server/request/request.h"
#include "server/rpc/stream.h"
#include "server/text/text_service.h"

namespace lowkey {

// ChatParsing says how the texts of a conversation's answer are taken apart.
struct ChatParsing {
  ToolFormat format = ToolFormat::kNone;  // calls of tools are looked for in this format
  ToolParserOptions options = {};
  bool is_named_call = false;  // the request names the tool that the answer calls
};

// Finds how the answer's text is read, and has the request, whose input is the conversation, ask
// for such a text. INVALID_ARGUMENT if calls are asked for beside another form of the answer;
// UNIMPLEMENTED for tools that the model may call as it likes but its template does not show it;
// errors of TextService::Render.
absl::StatusOr<ChatParsing> PlanAnswer(const TextService& service, const OpenAiOptions& options,
                                       const RpcContext& context, const RequestedTools& tools,
                                       GenerationRequest& request);

// Makes the parser of one answer; null: all text is content.
std::unique_ptr<ToolParser> MakeParser(const ChatParsing& parsing);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_ANSWER_PLAN_H_
