#include "server/api/openai/requests/tools.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/api/openai/requests/raw_json.h"
#include "server/api/openai/tools/call_scanner.h"

namespace lowkey {
namespace {

using nlohmann::json;

// A function without parameters takes none.
constexpr char kNoParameters[] =
    R"({"type":"object","properties":{},"additionalProperties":false})";

// Reads `type`, which must be "function", and the object `function`.
absl::StatusOr<const json*> ReadFunction(Fields& fields) {
  std::optional<std::string> type;
  LK_RETURN_IF_ERROR(fields.Read("type", type));
  if (type != "function") {
    return absl::UnimplementedError(absl::StrCat(fields.NameOf("type"), ": \"",
                                                 type.value_or("").substr(0, 64),
                                                 "\", expected \"function\""));
  }
  const json* function = fields.Take("function");
  if (function != nullptr && function->is_object()) return function;
  return fields.Error("function", "an object");
}

// `text` is the tool's text in the body.
absl::StatusOr<CallableTool> ReadTool(const json& value, const std::string& name,
                                      std::string_view text) {
  if (!value.is_object()) return ValueError(name, value, "an object");
  Fields tool(value, name + ".");
  LK_ASSIGN_OR_RETURN(const json* function, ReadFunction(tool));
  Fields inner(*function, name + ".function.");
  std::optional<std::string> function_name;
  LK_RETURN_IF_ERROR(inner.Read("name", function_name));
  if (!function_name.has_value()) return inner.Error("name", "a text");
  const json* parameters = inner.Take("parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return inner.Error("parameters", "a JSON Schema");
  }
  return CallableTool{inner.NameOf("parameters"), *std::move(function_name),
                      parameters == nullptr
                          ? kNoParameters
                          : std::string(MemberText(MemberText(text, "function"), "parameters"))};
}

absl::StatusOr<std::vector<CallableTool>> ReadList(Fields& fields, std::string_view text) {
  std::vector<CallableTool> tools;
  const json* value = fields.Take("tools");
  if (value == nullptr) return tools;
  if (!value->is_array() || value->size() > kMaxToolCalls) {
    return fields.Error("tools", absl::StrCat("an array of at most ", kMaxToolCalls, " tools"));
  }
  const std::vector<std::string_view> texts = ElementTexts(text);
  for (size_t i = 0; i < value->size(); ++i) {
    LK_ASSIGN_OR_RETURN(tools.emplace_back(),
                        ReadTool((*value)[i], absl::StrCat("tools[", i, "]"), texts[i]));
  }
  return tools;
}

// Every format can spell such a name.
absl::Status CheckName(const CallableTool& tool) {
  const auto is_of_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  if (!tool.name.empty() && tool.name.size() <= kMaxToolNameBytes &&
      std::all_of(tool.name.begin(), tool.name.end(), is_of_name)) {
    return absl::OkStatus();
  }
  const std::string field = tool.field.substr(0, tool.field.rfind('.'));
  return ValueError(field + ".name", json(tool.name),
                    absl::StrCat("1..", kMaxToolNameBytes,
                                 " letters, digits, \"_\", \"-\" and \".\" where tool_choice asks "
                                 "for a call"));
}

// Leaves the tools of the name that an object `tool_choice` has.
absl::Status KeepNamed(const json& value, std::vector<CallableTool>& tools) {
  Fields fields(value, "tool_choice.");
  LK_ASSIGN_OR_RETURN(const json* function, ReadFunction(fields));
  Fields inner(*function, "tool_choice.function.");
  std::optional<std::string> name;
  LK_RETURN_IF_ERROR(inner.Read("name", name));
  LK_RETURN_IF_ERROR(inner.CheckRest(UnknownFields::kRefused));
  LK_RETURN_IF_ERROR(fields.CheckRest(UnknownFields::kRefused));
  std::erase_if(tools, [&name](const CallableTool& tool) { return tool.name != name; });
  return tools.empty() ? inner.Error("name", "the name of one of the tools") : absl::OkStatus();
}

absl::Status ReadChoice(const json& value, std::vector<CallableTool> tools,
                        RequestedTools& result) {
  const bool is_named = value.is_object();
  if (tools.empty()) {
    return ValueError("tool_choice", value, "\"auto\" or \"none\" without tools");
  }
  if (is_named) LK_RETURN_IF_ERROR(KeepNamed(value, tools));
  for (const CallableTool& tool : tools) LK_RETURN_IF_ERROR(CheckName(tool));
  result.choice = is_named ? CallChoice::kNamed : CallChoice::kRequired;
  result.callable = std::move(tools);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RequestedTools> ReadTools(Fields& fields, const std::string& body) {
  const std::string_view text = MemberText(body, "tools");
  RequestedTools result;
  LK_ASSIGN_OR_RETURN(std::vector<CallableTool> tools, ReadList(fields, text));
  if (!tools.empty()) result.json = text;
  const json* choice = fields.Take("tool_choice");
  if (choice != nullptr && (*choice == "required" || choice->is_object())) {
    LK_RETURN_IF_ERROR(ReadChoice(*choice, std::move(tools), result));
  } else if (choice != nullptr && *choice == "none") {
    result.json.clear();
  } else if (choice != nullptr && *choice != "auto") {
    return fields.Error("tool_choice", "\"auto\", \"none\", \"required\" or a function's name");
  }
  LK_RETURN_IF_ERROR(fields.Read("parallel_tool_calls", result.is_parallel));
  if (result.choice == CallChoice::kNamed) result.is_parallel = false;
  if (result.json.empty() || result.choice != CallChoice::kFree) return result;
  LK_RETURN_IF_ERROR(fields.Accept("parallel_tool_calls", true));
  return result;
}

}  // namespace lowkey
