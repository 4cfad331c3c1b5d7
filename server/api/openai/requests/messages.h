#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/openai/requests/fields.h"
#include "tokenizer/chat/chat_template.h"

namespace lowkey {

// Reads `messages`, `tools`, `tool_choice`, `chat_template_kwargs` and `add_generation_prompt`;
// `body` is the text that `fields` was parsed from. INVALID_ARGUMENT naming the field
// ("messages[2].content[0].text"), or UNIMPLEMENTED for images, sound and tool choices that need a
// constraint. MakeChatPrompt checks the rest.
absl::StatusOr<Conversation> ReadConversation(Fields& fields, const std::string& body,
                                              UnknownFields unknown);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_
