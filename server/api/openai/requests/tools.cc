#include "server/api/openai/requests/tools.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/api/openai/requests/raw_json.h"
#include "server/api/openai/tools/call_scanner.h"
#include "server/request/limits.h"

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

struct ListedTool {
  CallableTool tool;
  std::string_view text;  // in the body
};

absl::StatusOr<std::vector<ListedTool>> ReadList(Fields& fields, std::string_view text) {
  std::vector<ListedTool> tools;
  const json* value = fields.Take("tools");
  if (value == nullptr) return tools;
  if (!value->is_array() || value->size() > kMaxToolCalls) {
    return fields.Error("tools", absl::StrCat("an array of at most ", kMaxToolCalls, " tools"));
  }
  const std::vector<std::string_view> texts = ElementTexts(text);
  if (texts.size() != value->size())
    return absl::InternalError("tools: their texts were not found");
  for (size_t i = 0; i < value->size(); ++i) {
    LK_ASSIGN_OR_RETURN(CallableTool tool,
                        ReadTool((*value)[i], absl::StrCat("tools[", i, "]"), texts[i]));
    tools.push_back({std::move(tool), texts[i]});
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

// Reads a tool's name from an object with `type` and `function`.
absl::StatusOr<std::string> ReadName(const json& value, const std::string& name,
                                     const std::vector<ListedTool>& tools) {
  if (!value.is_object()) return ValueError(name, value, "an object");
  Fields fields(value, name + ".");
  LK_ASSIGN_OR_RETURN(const json* function, ReadFunction(fields));
  Fields inner(*function, name + ".function.");
  std::optional<std::string> tool_name;
  LK_RETURN_IF_ERROR(inner.Read("name", tool_name));
  LK_RETURN_IF_ERROR(inner.CheckAll());
  LK_RETURN_IF_ERROR(fields.CheckAll());
  const bool is_known = std::any_of(tools.begin(), tools.end(), [&](const ListedTool& listed) {
    return listed.tool.name == tool_name;
  });
  return is_known ? absl::StatusOr<std::string>(*std::move(tool_name))
                  : inner.Error("name", "the name of one of the tools");
}

// Returns the names that a choice of type "allowed_tools" has, and sets `choice` to its mode.
absl::StatusOr<std::set<std::string>> ReadAllowed(const json& value,
                                                  const std::vector<ListedTool>& tools,
                                                  CallChoice& choice) {
  Fields fields(value, "tool_choice.");
  fields.Ignore("type");
  const json* object = fields.Take("allowed_tools");
  if (object == nullptr || !object->is_object()) return fields.Error("allowed_tools", "an object");
  LK_RETURN_IF_ERROR(fields.CheckAll());
  Fields allowed(*object, "tool_choice.allowed_tools.");
  std::optional<std::string> mode;
  LK_RETURN_IF_ERROR(allowed.Read("mode", mode));
  if (mode != "auto" && mode != "required") {
    return allowed.Error("mode", "\"auto\" or \"required\"");
  }
  choice = mode == "auto" ? CallChoice::kFree : CallChoice::kRequired;
  const json* list = allowed.Take("tools");
  LK_RETURN_IF_ERROR(allowed.CheckAll());
  if (list == nullptr || !list->is_array() || list->empty() || list->size() > kMaxToolCalls) {
    return allowed.Error("tools", absl::StrCat("an array of 1..", kMaxToolCalls, " tools"));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < list->size(); ++i) {
    LK_ASSIGN_OR_RETURN(
        std::string name,
        ReadName((*list)[i], absl::StrCat("tool_choice.allowed_tools.tools[", i, "]"), tools));
    names.insert(std::move(name));
  }
  return names;
}

// Reads an object `tool_choice`, and leaves the tools that it names.
absl::StatusOr<CallChoice> ReadNamed(const json& value, std::vector<ListedTool>& tools) {
  CallChoice choice = CallChoice::kNamed;
  std::set<std::string> names;
  const auto type = value.find("type");
  if (type != value.end() && *type == "allowed_tools") {
    LK_ASSIGN_OR_RETURN(names, ReadAllowed(value, tools, choice));
  } else {
    LK_ASSIGN_OR_RETURN(std::string name, ReadName(value, "tool_choice", tools));
    names.insert(std::move(name));
  }
  std::erase_if(tools,
                [&names](const ListedTool& listed) { return !names.contains(listed.tool.name); });
  return choice;
}

// Reads `tool_choice`; all but the tools that may be called leave the list.
absl::StatusOr<CallChoice> ReadChoice(Fields& fields, std::vector<ListedTool>& tools) {
  const json* value = fields.Take("tool_choice");
  if (value == nullptr || *value == "auto") return CallChoice::kFree;
  if (*value == "none") {
    tools.clear();
    return CallChoice::kFree;
  }
  if (*value != "required" && !value->is_object()) {
    return fields.Error("tool_choice",
                        "\"auto\", \"none\", \"required\", a function's name or allowed tools");
  }
  if (tools.empty()) {
    return fields.Error("tool_choice", "\"auto\" or \"none\" without tools");
  }
  return value->is_object() ? ReadNamed(*value, tools)
                            : absl::StatusOr<CallChoice>(CallChoice::kRequired);
}

// Returns the text of an array of the tools.
std::string TextOf(const std::vector<ListedTool>& tools) {
  std::string text;
  for (const ListedTool& listed : tools) {
    text.append(text.empty() ? "[" : ",").append(listed.text);
  }
  return text.empty() ? "" : text + "]";
}

}  // namespace

absl::StatusOr<RequestedTools> ReadTools(Fields& fields, const std::string& body) {
  const std::string_view text = MemberText(body, "tools");
  RequestedTools result;
  LK_ASSIGN_OR_RETURN(std::vector<ListedTool> tools, ReadList(fields, text));
  LK_ASSIGN_OR_RETURN(result.choice, ReadChoice(fields, tools));
  LK_RETURN_IF_ERROR(fields.Read("parallel_tool_calls", result.is_parallel));
  if (result.choice == CallChoice::kNamed) result.is_parallel = false;
  result.json = result.choice == CallChoice::kNamed ? std::string(text) : TextOf(tools);
  if (result.choice == CallChoice::kFree) return result;
  for (ListedTool& listed : tools) {
    LK_RETURN_IF_ERROR(CheckName(listed.tool));
    result.callable.push_back(std::move(listed.tool));
  }
  return result;
}

}  // namespace lowkey
