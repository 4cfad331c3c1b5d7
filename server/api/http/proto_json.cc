#include "server/api/http/proto_json.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/api/http/api_error.h"

namespace lowkey {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

constexpr char kTokenIds[] = "lowkey.v1.TokenIds";

bool IsTokenIds(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
         field.message_type()->full_name() == kTokenIds;
}

void WriteTokenIds(const Message& message, JsonWriter& writer) {
  const FieldDescriptor* ids = message.GetDescriptor()->FindFieldByName("ids");
  const Reflection& reflection = *message.GetReflection();
  writer.BeginArray();
  for (int i = 0; i < reflection.FieldSize(message, ids); ++i) {
    writer.Int(reflection.GetRepeatedInt32(message, ids, i));
  }
  writer.EndArray();
}

// Writes one value: `index` is that of a repeated field, -1 for others.
void WriteValue(const Message& message, const FieldDescriptor& field, int index,
                JsonWriter& writer) {
  const Reflection& r = *message.GetReflection();
  const bool is_one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      writer.Int(is_one ? r.GetInt32(message, &field) : r.GetRepeatedInt32(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      writer.Int(is_one ? r.GetInt64(message, &field) : r.GetRepeatedInt64(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      writer.Unsigned(is_one ? r.GetUInt32(message, &field)
                             : r.GetRepeatedUInt32(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      writer.Unsigned(is_one ? r.GetUInt64(message, &field)
                             : r.GetRepeatedUInt64(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      writer.Double(is_one ? r.GetDouble(message, &field)
                           : r.GetRepeatedDouble(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      writer.Float(is_one ? r.GetFloat(message, &field)
                          : r.GetRepeatedFloat(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      writer.Bool(is_one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      writer.Text((is_one ? r.GetEnum(message, &field) : r.GetRepeatedEnum(message, &field, index))
                      ->name());
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      writer.Text(is_one ? r.GetString(message, &field)
                         : r.GetRepeatedString(message, &field, index));
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Message& value =
          is_one ? r.GetMessage(message, &field) : r.GetRepeatedMessage(message, &field, index);
      return IsTokenIds(field) ? WriteTokenIds(value, writer) : WriteProto(value, writer);
    }
  }
}

// Writes a map as an object: its entries are messages whose first field is the key.
void WriteMap(const Message& message, const FieldDescriptor& field, JsonWriter& writer) {
  const FieldDescriptor& key = *field.message_type()->map_key();
  const FieldDescriptor& value = *field.message_type()->map_value();
  writer.BeginObject();
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
    const Message& entry = message.GetReflection()->GetRepeatedMessage(message, &field, i);
    std::string name;
    if (key.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      name = entry.GetReflection()->GetString(entry, &key);
    } else {
      JsonWriter name_writer(name);
      WriteValue(entry, key, -1, name_writer);
    }
    writer.Key(name);
    WriteValue(entry, value, -1, writer);
  }
  writer.EndObject();
}

absl::Status TypeError(const std::string& name, const json& value, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": ", Described(value), ", expected ", expected));
}

absl::StatusOr<int64_t> IntOf(const std::string& name, const json& value, int64_t min,
                              int64_t max) {
  const bool fits =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= static_cast<uint64_t>(max)
          : value.is_number_integer() && value.get<int64_t>() >= min && value.get<int64_t>() <= max;
  if (fits) return value.get<int64_t>();
  return TypeError(name, value, absl::StrCat("an integer in ", min, "..", max));
}

absl::Status ReadTokenIds(const json& value, const std::string& name, Message& message) {
  if (!value.is_array()) return TypeError(name, value, "an array of token ids");
  const FieldDescriptor* ids = message.GetDescriptor()->FindFieldByName("ids");
  for (size_t i = 0; i < value.size(); ++i) {
    LK_ASSIGN_OR_RETURN(const int64_t id, IntOf(absl::StrCat(name, "[", i, "]"), value[i], 0,
                                                std::numeric_limits<int32_t>::max()));
    message.GetReflection()->AddInt32(&message, ids, static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

// Sets a field, or adds to a repeated one.
template <typename Set, typename Add, typename Value>
absl::Status Put(const FieldDescriptor& field, Message& message, Set set, Add add, Value value) {
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    (reflection.*add)(&message, &field, value);
  } else {
    (reflection.*set)(&message, &field, value);
  }
  return absl::OkStatus();
}

absl::Status ReadNumber(const json& value, const std::string& name, const FieldDescriptor& field,
                        Message& message) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    if (!value.is_number()) return TypeError(name, value, "a number");
    return Put(field, message, &Reflection::SetDouble, &Reflection::AddDouble, value.get<double>());
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
    LK_ASSIGN_OR_RETURN(const int64_t number,
                        IntOf(name, value, std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max()));
    return Put(field, message, &Reflection::SetInt32, &Reflection::AddInt32,
               static_cast<int32_t>(number));
  }
  return absl::UnimplementedError(absl::StrCat(name, ": cannot be set over HTTP"));
}

absl::Status ReadText(const json& value, const std::string& name, const FieldDescriptor& field,
                      Message& message) {
  if (!value.is_string() && !value.is_number()) return TypeError(name, value, "a text");
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) {
    reflection.AddString(&message, &field, text);
  } else {
    reflection.SetString(&message, &field, text);
  }
  return absl::OkStatus();
}

absl::Status ReadValue(const json& value, const std::string& name, const FieldDescriptor& field,
                       Message& message) {
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Message& part = field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                        : *reflection.MutableMessage(&message, &field);
    return IsTokenIds(field) ? ReadTokenIds(value, name, part) : ReadProto(value, name, part);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    if (!value.is_boolean()) return TypeError(name, value, "true or false");
    return Put(field, message, &Reflection::SetBool, &Reflection::AddBool, value.get<bool>());
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return ReadText(value, name, field, message);
  }
  return ReadNumber(value, name, field, message);
}

}  // namespace

void WriteProto(const Message& message, JsonWriter& writer) {
  const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  writer.BeginObject();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    if (field.has_presence() && !reflection.HasField(message, &field)) continue;
    writer.Key(field.name());
    if (!field.is_repeated()) {
      WriteValue(message, field, -1, writer);
      continue;
    }
    if (field.is_map()) {
      WriteMap(message, field, writer);
      continue;
    }
    writer.BeginArray();
    for (int k = 0; k < reflection.FieldSize(message, &field); ++k) {
      WriteValue(message, field, k, writer);
    }
    writer.EndArray();
  }
  writer.EndObject();
}

nlohmann::ordered_json ProtoJson(const Message& message) {
  std::string text;
  JsonWriter writer(text);
  WriteProto(message, writer);
  return nlohmann::ordered_json::parse(text);
}

absl::Status ReadProto(const json& object, const std::string& name, Message& message) {
  if (!object.is_object()) {
    return TypeError(name.empty() ? "body" : name, object, "an object");
  }
  for (const auto& [key, value] : object.items()) {
    const std::string path = name.empty() ? key : absl::StrCat(name, ".", key);
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
    if (value.is_null()) continue;
    if (field == nullptr) {
      return WithErrorCode(
          absl::InvalidArgumentError(absl::StrCat(path.substr(0, 128), ": unknown field")),
          "unknown_parameter");
    }
    if (!field->is_repeated()) {
      LK_RETURN_IF_ERROR(ReadValue(value, path, *field, message));
      continue;
    }
    if (!value.is_array()) return TypeError(path, value, "an array");
    for (size_t i = 0; i < value.size(); ++i) {
      LK_RETURN_IF_ERROR(ReadValue(value[i], absl::StrCat(path, "[", i, "]"), *field, message));
    }
  }
  return absl::OkStatus();
}

}  // namespace lowkey
