#ifndef LOWKEY_SERVER_API_OPENAI_RESPONSES_INPUT_H_
#define LOWKEY_SERVER_API_OPENAI_RESPONSES_INPUT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/openai/requests/fields.h"
#include "server/api/openai/requests/tools.h"
#include "tokenizer/chat/chat_template.h"

namespace lowkey {

// Reads what a request of /v1/responses shows to the model, as the conversation that a chat would
// have: `instructions` become a system message before those of `input`; calls join the assistant's
// message before them; reasoning that comes back is dropped, as in chats. Reads `tools`,
// `tool_choice`, `parallel_tool_calls`, `chat_template_kwargs` and `add_generation_prompt` too.
// `body` is the text that `fields` was parsed from. INVALID_ARGUMENT naming the field
// ("input[2].content[0].text"), UNIMPLEMENTED for items, parts and tools of other types.
absl::StatusOr<Conversation> ReadInput(Fields& fields, const std::string& body,
                                       UnknownFields unknown, RequestedTools& tools);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_RESPONSES_INPUT_H_
