#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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

// The parts of ReadConversation that /v1/responses shares.

// Reads a field that is a text or an array of parts of these types, whose texts are joined by
// newlines. UNIMPLEMENTED naming the type of another part.
absl::Status ReadTexts(Fields& fields, const char* key, absl::Span<const std::string_view> types,
                       UnknownFields unknown, std::optional<std::string>& text);

// Reads a call's `arguments`. The empty text, which some clients send back for a call without
// arguments, becomes "{}". INVALID_ARGUMENT naming the field: missing, or not JSON.
absl::StatusOr<std::string> ReadArguments(Fields& function);

// Reads `chat_template_kwargs` and `add_generation_prompt`.
absl::Status ReadTemplateFields(Fields& fields, const std::string& body,
                                Conversation& conversation);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_MESSAGES_H_
