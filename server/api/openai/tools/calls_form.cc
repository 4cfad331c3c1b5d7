#include "server/api/openai/tools/calls_form.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

CallMark Text(std::string text) { return {CallMark::Kind::kText, std::move(text)}; }
CallMark Piece(std::string name) { return {CallMark::Kind::kPiece, std::move(name)}; }
CallMark Space() { return {CallMark::Kind::kSpace, ""}; }

// The beginning of a call as a JSON object. Names need no escapes.
CallMark ObjectBegin(const std::string& name, const char* arguments) {
  return Text(absl::StrCat("{\"name\": \"", name, "\", \"", arguments, "\": "));
}

void AroundHermes(const std::string& name, ToolCallsForm::Tool& tool) {
  tool.begin = {Piece("<tool_call>"), Space(), ObjectBegin(name, "arguments")};
  tool.end = {Text("}"), Space(), Piece("</tool_call>")};
}

void AroundLlama3(const std::string& name, ToolCallsForm::Tool& tool) {
  tool.begin = {ObjectBegin(name, "parameters")};
  tool.end = {Text("}")};
}

void AroundMistral(bool is_array, const std::string& name, ToolCallsForm::Tool& tool) {
  if (!is_array) {
    tool.begin = {Piece("[TOOL_CALLS]"), Text(name), Piece("[ARGS]")};
    return;
  }
  tool.begin = {ObjectBegin(name, "arguments")};
  tool.end = {Text("}")};
}

}  // namespace

ToolCallsForm CallsFormOf(ToolFormat format, std::string_view template_text,
                          const std::vector<CallableTool>& tools, bool is_parallel) {
  // Templates of later models write a call as its name and its arguments.
  const bool is_array =
      format == ToolFormat::kMistral && template_text.find("[ARGS]") == std::string_view::npos;
  ToolCallsForm form;
  form.most_calls = is_parallel ? int{kMaxToolCalls} : 1;
  for (const CallableTool& callable : tools) {
    ToolCallsForm::Tool& tool = form.tools.emplace_back();
    tool.field = callable.field;
    tool.schema = callable.parameters;
    if (format == ToolFormat::kHermes) AroundHermes(callable.name, tool);
    if (format == ToolFormat::kLlama3) AroundLlama3(callable.name, tool);
    if (format == ToolFormat::kMistral) AroundMistral(is_array, callable.name, tool);
  }
  if (format == ToolFormat::kHermes) form.separator = {Space()};
  if (format == ToolFormat::kLlama3) form.separator = {Text(";"), Space()};
  if (is_array) {
    form.begin = {Piece("[TOOL_CALLS]"), Space(), Text("[")};
    form.separator = {Text(","), Space()};
    form.end = {Space(), Text("]")};
  }
  return form;
}

}  // namespace lowkey
