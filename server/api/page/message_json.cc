#include "server/api/page/message_json.h"

#include <google/protobuf/descriptor.h>

#include <charconv>
#include <string>
#include <type_traits>

namespace lowkey {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

// Returns the double of the fewest digits that stand for this float: 0.8, not 0.800000011920929.
double ShortestDouble(float value) {
  char digits[32];
  const auto written = std::to_chars(digits, digits + sizeof(digits), value);
  double shortest = value;
  std::from_chars(digits, written.ptr, shortest);
  return shortest;
}

// Reads a field, or element `index` of a repeated field.
class FieldReader {
  using R = google::protobuf::Reflection;

  template <typename Single, typename Repeated>
  auto Get(Single single, Repeated repeated, int index) const {
    return field_.is_repeated() ? (reflection_.*repeated)(message_, &field_, index)
                                : (reflection_.*single)(message_, &field_);
  }

 public:
  FieldReader(const Message& message, const FieldDescriptor& field)
      : message_(message), reflection_(*message.GetReflection()), field_(field) {}

  Json Value(int index) const {
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Get(&R::GetInt32, &R::GetRepeatedInt32, index);
      case FieldDescriptor::CPPTYPE_INT64:
        return Get(&R::GetInt64, &R::GetRepeatedInt64, index);
      case FieldDescriptor::CPPTYPE_UINT32:
        return Get(&R::GetUInt32, &R::GetRepeatedUInt32, index);
      case FieldDescriptor::CPPTYPE_UINT64:
        return Get(&R::GetUInt64, &R::GetRepeatedUInt64, index);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Get(&R::GetDouble, &R::GetRepeatedDouble, index);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return ShortestDouble(Get(&R::GetFloat, &R::GetRepeatedFloat, index));
      case FieldDescriptor::CPPTYPE_BOOL:
        return Get(&R::GetBool, &R::GetRepeatedBool, index);
      case FieldDescriptor::CPPTYPE_STRING:
        return Get(&R::GetString, &R::GetRepeatedString, index);
      case FieldDescriptor::CPPTYPE_ENUM:
        return Get(&R::GetEnum, &R::GetRepeatedEnum, index)->name();
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return MessageJson(field_.is_repeated()
                               ? reflection_.GetRepeatedMessage(message_, &field_, index)
                               : reflection_.GetMessage(message_, &field_));
    }
    return nullptr;
  }

  Json Elements() const {
    const int n = reflection_.FieldSize(message_, &field_);
    Json elements = field_.is_map() ? Json::object() : Json::array();
    for (int i = 0; i < n; ++i) {
      Json element = Value(i);
      if (!field_.is_map()) {
        elements.push_back(std::move(element));
        continue;
      }
      const Json& key = element["key"];
      elements[key.is_string() ? key.get<std::string>() : key.dump()] = element["value"];
    }
    return elements;
  }

 private:
  const Message& message_;
  const R& reflection_;
  const FieldDescriptor& field_;
};

}  // namespace

Json MessageJson(const Message& message) {
  Json json = Json::object();
  const auto& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const FieldReader reader(message, field);
    if (field.is_repeated()) {
      json[field.name()] = reader.Elements();
    } else if (!field.has_presence() || message.GetReflection()->HasField(message, &field)) {
      json[field.name()] = reader.Value(0);
    }
  }
  return json;
}

}  // namespace lowkey
