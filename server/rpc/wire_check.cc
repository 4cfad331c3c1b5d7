#include "server/rpc/wire_check.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstddef>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Protobuf reads a tag and a length from at most this many bytes.
constexpr size_t kMaxTagBytes = 5;
constexpr size_t kMaxVarintBytes = 10;

absl::Status Malformed() {
  return absl::InvalidArgumentError("message: malformed, expected a protobuf of its type");
}

// Takes a varint of at most max_bytes off the front of `bytes`. What does not fit 64 bits is lost.
std::optional<uint64_t> TakeVarint(std::string_view& bytes, size_t max_bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < max_bytes && i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    value |= uint64_t{byte & 0x7Fu} << (7 * i);
    if ((byte & 0x80) == 0) {
      bytes.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

// One field as it stands on the wire.
struct WireField {
  uint32_t number = 0;
  WireType type = kVarint;
  std::string_view content = {};  // of kBytes
};

std::optional<std::string_view> TakeBytes(std::string_view& bytes, uint64_t n) {
  if (n > bytes.size()) return std::nullopt;
  const std::string_view taken = bytes.substr(0, n);
  bytes.remove_prefix(n);
  return taken;
}

// Takes a field off the front of `bytes`; nullopt if it is malformed, a group, or cut off. A tag of
// more than 32 bits is malformed: protobuf drops the upper bits and would see another field.
std::optional<WireField> TakeField(std::string_view& bytes) {
  const std::optional<uint64_t> tag = TakeVarint(bytes, kMaxTagBytes);
  if (!tag.has_value() || *tag > std::numeric_limits<uint32_t>::max() || *tag < 8) {
    return std::nullopt;
  }
  WireField field{static_cast<uint32_t>(*tag >> 3), static_cast<WireType>(*tag & 7)};
  bool is_whole = false;
  switch (field.type) {
    case kVarint:
      is_whole = TakeVarint(bytes, kMaxVarintBytes).has_value();
      break;
    case kFixed64:
      is_whole = TakeBytes(bytes, 8).has_value();
      break;
    case kFixed32:
      is_whole = TakeBytes(bytes, 4).has_value();
      break;
    case kBytes: {
      const std::optional<uint64_t> n = TakeVarint(bytes, kMaxTagBytes);
      const auto content = n.has_value() ? TakeBytes(bytes, *n) : std::nullopt;
      is_whole = content.has_value();
      field.content = content.value_or("");
      break;
    }
  }
  if (!is_whole) return std::nullopt;
  return field;
}

// Visits every field of a message and of the messages within it: visit(declaration, content). Only
// known fields that have a length on the wire have a declaration, the others null.
template <typename Visit>
absl::Status Walk(std::string_view bytes, const Descriptor& type, int depth, const Visit& visit) {
  if (depth > kMaxWireDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("message: nested too deep, expected at most ", kMaxWireDepth, " levels"));
  }
  while (!bytes.empty()) {
    const std::optional<WireField> wire = TakeField(bytes);
    if (!wire.has_value()) return Malformed();
    const FieldDescriptor* field =
        wire->type == kBytes ? type.FindFieldByNumber(static_cast<int>(wire->number)) : nullptr;
    LK_RETURN_IF_ERROR(visit(field, wire->content));
    if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
      LK_RETURN_IF_ERROR(Walk(wire->content, *field->message_type(), depth + 1, visit));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckWire(std::string_view bytes, const Descriptor& type) {
  int64_t n_elements = 0;
  return Walk(bytes, type, 1, [&](const FieldDescriptor* field, std::string_view content) {
    const bool is_packed = field != nullptr && field->is_packable();
    n_elements += is_packed ? 1 + static_cast<int64_t>(content.size() / 64) : 1;
    if (n_elements <= kMaxWireElements) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("message: too many elements, expected at most ", kMaxWireElements));
  });
}

absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message& message) {
  const auto check_text = [](const FieldDescriptor* field, std::string_view content) {
    const bool is_text = field != nullptr && field->type() == FieldDescriptor::TYPE_STRING;
    if (!is_text || !FindInvalidUtf8(content).has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(field->name(), ": not UTF-8, expected UTF-8 text"));
  };
  LK_RETURN_IF_ERROR(Walk(bytes, *message.GetDescriptor(), 1, check_text));
  // ParseFromArray would log what proto2 requires and a message lacks.
  const bool is_parsed =
      bytes.size() <= static_cast<size_t>(std::numeric_limits<int>::max()) &&
      message.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()));
  return is_parsed ? absl::OkStatus() : Malformed();
}

}  // namespace lowkey
