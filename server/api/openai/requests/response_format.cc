#include "server/api/openai/requests/response_format.h"

#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/api/openai/requests/raw_json.h"

namespace lowkey {
namespace {

using Kind = ResponseFormat::Kind;
using nlohmann::json;

absl::Status Take(ResponseFormat found, std::string_view name,
                  std::optional<ResponseFormat>& format) {
  if (format.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        std::string(name), ": set beside another form of the answer, expected one of them"));
  }
  format = std::move(found);
  return absl::OkStatus();
}

// `text` is the value's text in the body.
absl::Status ReadSchema(Fields& fields, const char* key, std::string_view text,
                        std::optional<ResponseFormat>& format) {
  const json* value = fields.Take(key);
  if (value == nullptr) return absl::OkStatus();
  // vLLM's clients send schemas as text, too.
  if (value->is_string()) {
    return Take({Kind::kJsonSchema, value->get<std::string>()}, fields.NameOf(key), format);
  }
  if (!value->is_object() && !value->is_boolean()) return fields.Error(key, "a JSON Schema");
  return Take({Kind::kJsonSchema, std::string(text)}, fields.NameOf(key), format);
}

absl::Status ReadText(Fields& fields, const char* key, Kind kind,
                      std::optional<ResponseFormat>& format) {
  std::optional<std::string> text;
  LK_RETURN_IF_ERROR(fields.Read(key, text));
  if (!text.has_value()) return absl::OkStatus();
  return Take({kind, *std::move(text)}, fields.NameOf(key), format);
}

absl::Status ReadChoice(Fields& fields, const char* key, std::optional<ResponseFormat>& format) {
  const json* value = fields.Take(key);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) return fields.Error(key, "an array of texts");
  ResponseFormat found = {Kind::kChoice};
  for (size_t i = 0; i < value->size(); ++i) {
    if (!(*value)[i].is_string()) {
      return ValueError(absl::StrCat(fields.NameOf(key), "[", i, "]"), (*value)[i], "a text");
    }
    found.choices.push_back((*value)[i].get<std::string>());
  }
  return Take(std::move(found), fields.NameOf(key), format);
}

absl::Status ReadFlag(Fields& fields, const char* key, std::optional<ResponseFormat>& format) {
  bool is_on = false;
  LK_RETURN_IF_ERROR(fields.Read(key, is_on));
  return is_on ? Take({Kind::kJsonObject}, fields.NameOf(key), format) : absl::OkStatus();
}

// Reads OpenAI's `schema` and what stands beside it; `text` is that of the object around them.
absl::Status ReadNamedSchema(Fields& fields, std::string_view text,
                             std::optional<ResponseFormat>& format) {
  for (const char* key : {"name", "description", "strict"}) fields.Ignore(key);
  if (fields.Take("schema") == nullptr) return fields.Error("schema", "a JSON Schema");
  return ReadSchema(fields, "schema", MemberText(text, "schema"), format);
}

absl::Status ReadOpenAi(const json& value, std::string_view text,
                        std::optional<ResponseFormat>& format) {
  Fields fields(value, "response_format.");
  std::optional<std::string> type;
  LK_RETURN_IF_ERROR(fields.Read("type", type));
  if (type == "json_schema") {
    const json* outer = fields.Take("json_schema");
    if (outer == nullptr || !outer->is_object()) return fields.Error("json_schema", "an object");
    Fields inner(*outer, "response_format.json_schema.");
    LK_RETURN_IF_ERROR(ReadNamedSchema(inner, MemberText(text, "json_schema"), format));
    LK_RETURN_IF_ERROR(inner.CheckAll());
  } else if (type == "json_object") {
    LK_RETURN_IF_ERROR(Take({Kind::kJsonObject}, "response_format", format));
  } else if (type != "text") {
    return fields.Error("type", "\"text\", \"json_object\" or \"json_schema\"");
  }
  return fields.CheckAll();
}

absl::Status ReadStructuredOutputs(const json& value, std::string_view text,
                                   std::optional<ResponseFormat>& format) {
  Fields fields(value, "structured_outputs.");
  LK_RETURN_IF_ERROR(ReadSchema(fields, "json", MemberText(text, "json"), format));
  LK_RETURN_IF_ERROR(ReadText(fields, "regex", Kind::kRegex, format));
  LK_RETURN_IF_ERROR(ReadChoice(fields, "choice", format));
  LK_RETURN_IF_ERROR(ReadText(fields, "grammar", Kind::kGrammar, format));
  LK_RETURN_IF_ERROR(ReadFlag(fields, "json_object", format));
  // Settings of vLLM's libraries.
  for (const char* key : {"disable_fallback", "disable_any_whitespace",
                          "disable_additional_properties", "whitespace_pattern", "backend"}) {
    fields.Ignore(key);
  }
  return fields.CheckAll();
}

}  // namespace

absl::Status ReadResponseFormat(Fields& fields, const std::string& body,
                                std::optional<ResponseFormat>& format) {
  if (const json* value = fields.Take("response_format"); value != nullptr) {
    if (!value->is_object()) return fields.Error("response_format", "an object");
    LK_RETURN_IF_ERROR(ReadOpenAi(*value, MemberText(body, "response_format"), format));
  }
  if (const json* value = fields.Take("structured_outputs"); value != nullptr) {
    if (!value->is_object()) return fields.Error("structured_outputs", "an object");
    LK_RETURN_IF_ERROR(
        ReadStructuredOutputs(*value, MemberText(body, "structured_outputs"), format));
  }
  LK_RETURN_IF_ERROR(ReadSchema(fields, "guided_json", MemberText(body, "guided_json"), format));
  LK_RETURN_IF_ERROR(ReadText(fields, "guided_regex", Kind::kRegex, format));
  LK_RETURN_IF_ERROR(ReadChoice(fields, "guided_choice", format));
  LK_RETURN_IF_ERROR(ReadText(fields, "guided_grammar", Kind::kGrammar, format));
  for (const char* key : {"guided_decoding_backend", "guided_whitespace_pattern"}) {
    fields.Ignore(key);
  }
  return absl::OkStatus();
}

absl::Status ReadTextFormat(Fields& fields, std::string_view text,
                            std::optional<ResponseFormat>& format) {
  const json* value = fields.Take("format");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object()) return fields.Error("format", "an object");
  Fields inner(*value, fields.NameOf("format."));
  std::optional<std::string> type;
  LK_RETURN_IF_ERROR(inner.Read("type", type));
  if (type == "json_schema") {
    LK_RETURN_IF_ERROR(ReadNamedSchema(inner, MemberText(text, "format"), format));
  } else if (type == "json_object") {
    LK_RETURN_IF_ERROR(Take({Kind::kJsonObject}, fields.NameOf("format"), format));
  } else if (type != "text") {
    return inner.Error("type", "\"text\", \"json_object\" or \"json_schema\"");
  }
  return inner.CheckAll();
}

}  // namespace lowkey
