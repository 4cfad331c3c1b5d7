#ifndef LOWKEY_SERVER_API_OPENAI_OPTIONS_H_
#define LOWKEY_SERVER_API_OPENAI_OPTIONS_H_

#include <optional>

#include "server/api/openai/tools/tool_format.h"

namespace lowkey {

// Says what happens to the fields of a request that no reader asked for.
enum class UnknownFields { kRefused, kIgnored };

struct OpenAiOptions {
  UnknownFields unknown_fields = UnknownFields::kRefused;
  // The temperature of requests that leave it unset, as OpenAI has it. Nullopt: the server's own.
  std::optional<float> temperature = 1.0f;
  // Says whether answers of chats that leave their length unset may fill the context. If not, they
  // take the server's default.
  bool fills_context = true;
  // The format of tool calls. Nullopt: the one that the chat template teaches.
  std::optional<ToolFormat> tool_format = std::nullopt;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_OPTIONS_H_
