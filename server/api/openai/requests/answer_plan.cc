#include "server/api/openai/requests/answer_plan.h"

#include <string>
#include <variant>

#include "server/api/openai/tools/calls_form.h"

namespace lowkey {

absl::StatusOr<ChatParsing> PlanAnswer(const TextService& service, const OpenAiOptions& options,
                                       const RpcContext& context, const RequestedTools& tools,
                                       GenerationRequest& request) {
  using Reasoning = ToolCallsForm::Reasoning;
  const auto& chat_template = service.options().chat_templates.Find(
      tools.json.empty() ? ChatTemplates::Tools::kNone : ChatTemplates::Tools::kSome);
  const std::string source = chat_template.ok() ? chat_template->source() : "";
  const bool must_call = tools.choice != CallChoice::kFree;
  if (must_call && request.response_format.has_value()) {
    return absl::InvalidArgumentError(
        "tool_choice: asks for calls, expected \"auto\" or \"none\" beside another form of the "
        "answer");
  }
  // Forced calls need no template: the constraint knows the tools. Where the server is told the
  // format of calls, requests may describe their tools themselves.
  if (!must_call && !tools.json.empty() && !options.tool_format.has_value() && chat_template.ok() &&
      !chat_template->names_tools()) {
    return absl::UnimplementedError(
        "tools: set, but the model's chat template does not take tools, expected none, or a "
        "tool_choice that is \"none\", \"required\" or a function");
  }
  ChatParsing parsing;
  if (!tools.json.empty()) {
    parsing.format = options.tool_format.value_or(DetectToolFormat(source));
  }
  // Where the template teaches no format, the constraint asks for the simplest one, bare JSON.
  if (must_call && parsing.format == ToolFormat::kNone) parsing.format = ToolFormat::kLlama3;
  parsing.is_named_call = tools.choice == CallChoice::kNamed;
  parsing.options.is_single_call = !tools.is_parallel;
  parsing.options.is_calls_only = must_call;
  request.shown_pieces = ToolMarkers(parsing.format);
  // Another form of the answer leaves no room for reasoning.
  if (request.response_format.has_value()) return parsing;
  Reasoning reasoning = SpeaksOfReasoning(source) ? Reasoning::kAllowed : Reasoning::kNone;
  if (reasoning == Reasoning::kAllowed) {
    const absl::StatusOr<std::string> prompt =
        service.Render(std::get<Conversation>(request.input), context.tenant);
    if (!prompt.ok()) return prompt.status();
    if (EndsInReasoning(*prompt)) reasoning = Reasoning::kBegun;
  }
  parsing.options.may_reason =
      reasoning != Reasoning::kNone || parsing.format == ToolFormat::kHermes;
  parsing.options.begins_in_reasoning = reasoning == Reasoning::kBegun;
  if (parsing.options.may_reason) {
    for (std::string& marker : ReasoningMarkers()) request.shown_pieces.push_back(marker);
  }
  if (!must_call) return parsing;
  ResponseFormat& format = request.response_format.emplace();
  format.kind = ResponseFormat::Kind::kToolCalls;
  format.calls = CallsFormOf(parsing.format, source, tools.callable, tools.is_parallel);
  format.calls.reasoning = reasoning;
  return parsing;
}

std::unique_ptr<ToolParser> MakeParser(const ChatParsing& parsing) {
  const bool is_plain = parsing.format == ToolFormat::kNone && !parsing.options.may_reason;
  return is_plain ? nullptr : MakeToolParser(parsing.format, parsing.options);
}

}  // namespace lowkey
