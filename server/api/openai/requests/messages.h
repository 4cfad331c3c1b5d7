#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/api/openai/requests/fields.h"
#include "server/api/openai/requests/tools.h"
#include "tokenizer/chat/chat_template.h"

namespace lowkey {

// Reads `messages`, `chat_template_kwargs` and `add_generation_prompt`; `body` is the text that
// `fields` was parsed from, `tools` what ReadTools found in it. INVALID_ARGUMENT naming the field
// ("messages[2].content[0].text"), or UNIMPLEMENTED for images and sound. MakeChatPrompt checks the
// rest.
absl::StatusOr<Conversation> ReadConversation(Fields& fields, const std::string& body,
                                              const RequestedTools& tools, UnknownFields unknown);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_
