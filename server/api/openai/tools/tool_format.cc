#include "server/api/openai/tools/tool_format.h"

namespace lowkey {

ToolFormat DetectToolFormat(std::string_view template_text) {
  const auto has = [template_text](std::string_view text) {
    return template_text.find(text) != std::string_view::npos;
  };
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  // Qwen3-Coder and GLM have other texts within the same tags.
  if (has("<tool_call>")) {
    return has("<function=") || has("<arg_key>") ? ToolFormat::kNone : ToolFormat::kHermes;
  }
  const bool is_llama = has("<|python_tag|>") || has("<|start_header_id|>");
  return is_llama && has("\"parameters\"") ? ToolFormat::kLlama3 : ToolFormat::kNone;
}

std::vector<std::string> ToolMarkers(ToolFormat format) {
  switch (format) {
    case ToolFormat::kNone:
      return {};
    case ToolFormat::kHermes:
      return {"<tool_call>", "</tool_call>"};
    case ToolFormat::kLlama3:
      return {"<|python_tag|>"};
    case ToolFormat::kMistral:
      return {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};
  }
  return {};
}

bool SpeaksOfReasoning(std::string_view template_text) {
  return template_text.find(kReasoningOpen) != std::string_view::npos ||
         template_text.find(kReasoningClose) != std::string_view::npos;
}

std::vector<std::string> ReasoningMarkers() {
  return {std::string(kReasoningOpen), std::string(kReasoningClose)};
}

bool EndsInReasoning(std::string_view prompt) {
  const size_t end = prompt.find_last_not_of(" \t\r\n");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(kReasoningOpen);
}

}  // namespace lowkey
