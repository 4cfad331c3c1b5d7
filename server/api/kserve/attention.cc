// Reads attention options by their names in lowkey.v1.AttentionOptions.
#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "lowkey/v1/generation.pb.h"
#include "server/api/kserve/settings.h"
#include "server/api/lowkey/convert_request.h"

namespace lowkey {
namespace {

using google::protobuf::FieldDescriptor;
using nlohmann::json;

constexpr size_t kMaxAttentionBytes = size_t{4} << 10;

// The value as text that a name or a rank may be.
std::string TextOf(const SettingValue& value) {
  const std::string* text = std::get_if<std::string>(&value);
  return text != nullptr ? *text : ShortSetting(value);
}

absl::Status SetField(const std::string& name, const FieldDescriptor& field,
                      const SettingValue& value, v1::AttentionOptions& proto) {
  const google::protobuf::Reflection& reflection = *proto.GetReflection();
  if (field.is_repeated()) {
    for (const auto item : absl::StrSplit(TextOf(value), ',', absl::SkipWhitespace())) {
      reflection.AddString(&proto, &field, std::string(absl::StripAsciiWhitespace(item)));
    }
    return absl::OkStatus();
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: {
      LK_ASSIGN_OR_RETURN(const int32_t number, ToInt32(name, value));
      reflection.SetInt32(&proto, &field, number);
      break;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      LK_ASSIGN_OR_RETURN(const bool flag, ToBool(name, value));
      reflection.SetBool(&proto, &field, flag);
      break;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      LK_ASSIGN_OR_RETURN(const double number, ToDouble(name, value));
      reflection.SetDouble(&proto, &field, number);
      break;
    }
    default:
      reflection.SetString(&proto, &field, TextOf(value));
  }
  return absl::OkStatus();
}

// Turns a member of the JSON object into a setting; a list of texts becomes one with commas.
absl::StatusOr<SettingValue> MemberValue(const std::string& name, const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  std::string names;
  for (const json& item : value) {
    if (!value.is_array() || !item.is_string()) break;
    absl::StrAppend(&names, names.empty() ? "" : ",", item.get<std::string>());
  }
  if (!names.empty()) return names;
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ", ShortText(value), ", expected a number, a text, true, false or a list of texts"));
}

}  // namespace

absl::Status SetAttentionOption(std::string_view where, std::string_view field_name,
                                const SettingValue& value, AttentionChoice& attention) {
  const FieldDescriptor* field =
      v1::AttentionOptions::descriptor()->FindFieldByName(std::string(field_name));
  const std::string name = absl::StrCat(std::string(where), std::string(field_name));
  if (field == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": is not known, expected a field of lowkey.v1.AttentionOptions"));
  }
  v1::AttentionOptions proto = ToProto(attention);
  LK_RETURN_IF_ERROR(CheckUtf8(name, TextOf(value)));
  LK_RETURN_IF_ERROR(SetField(name, *field, value, proto));
  attention = FromProto(proto);
  return absl::OkStatus();
}

absl::Status ReadAttention(std::string_view text, AttentionChoice& attention) {
  if (text.size() > kMaxAttentionBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention: ", text.size(), " bytes, expected at most ", kMaxAttentionBytes));
  }
  if (!text.starts_with('{')) {
    attention.mechanism = std::string(text);
    return absl::OkStatus();
  }
  LK_ASSIGN_OR_RETURN(const json object, ParseJsonObject(text, "attention", 2));
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;
    LK_ASSIGN_OR_RETURN(const SettingValue setting,
                        MemberValue(absl::StrCat("attention.", key), value));
    LK_RETURN_IF_ERROR(SetAttentionOption("attention.", key, setting, attention));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
