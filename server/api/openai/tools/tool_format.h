#ifndef LOWKEY_SERVER_API_OPENAI_TOOLS_TOOL_FORMAT_H_
#define LOWKEY_SERVER_API_OPENAI_TOOLS_TOOL_FORMAT_H_

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/enum_names.h"

namespace lowkey {

// ToolFormat says how a model writes the calls of tools, as its chat template taught it.
enum class ToolFormat {
  kNone,    // not at all: every text is content
  kHermes,  // Qwen, Hermes: <tool_call>{"name": ..., "arguments": {...}}</tool_call>
  kLlama3,  // Llama 3.1 and later: {"name": ..., "parameters": {...}}, or a tag and name.call(...)
  kMistral  // [TOOL_CALLS] and a JSON array, or [TOOL_CALLS]name[ARGS]{...}
};
template <>
inline constexpr EnumNames kEnumNames<ToolFormat> = {"tool format",
                                                     {"none", "hermes", "llama3", "mistral"}};

// Returns the format that a chat template's text speaks of; kNone for another one, or none.
ToolFormat DetectToolFormat(std::string_view template_text);

// Returns the markers of a format. Some vocabularies have them as control pieces, whose text a
// parser must see (GenerationRequest::shown_pieces).
std::vector<std::string> ToolMarkers(ToolFormat format);

// A model writes its reasoning between these markers.
inline constexpr std::string_view kReasoningOpen = "<think>", kReasoningClose = "</think>";

// Returns whether a template's text speaks of <think> or its end, so that an answer may begin with
// it.
bool SpeaksOfReasoning(std::string_view template_text);

// Returns the markers around reasoning, which may be control pieces too.
std::vector<std::string> ReasoningMarkers();

// Returns whether a prompt ends within an open <think>, so that the answer begins as reasoning.
bool EndsInReasoning(std::string_view prompt);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOOLS_TOOL_FORMAT_H_
