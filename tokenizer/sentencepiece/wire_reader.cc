#include "tokenizer/sentencepiece/wire_reader.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr uint32_t kVarint = 0;
constexpr uint32_t kFixed64 = 1;
constexpr uint32_t kBytes = 2;
constexpr uint32_t kFixed32 = 5;

absl::Status Truncated(size_t offset) {
  return absl::InvalidArgumentError(
      absl::StrCat("malformed message: ends inside the field at byte ", offset));
}

absl::Status CheckWireType(const WireField& field, uint32_t expected) {
  if (field.wire_type == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("field ", field.number, ": wire type ",
                                                 field.wire_type, ", expected ", expected));
}

std::optional<uint64_t> TakeVarint(std::string_view& rest) {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < rest.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(rest[i]);
    if (i == 9 && byte > 1) return std::nullopt;
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if ((byte & 0x80) == 0) {
      rest.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> TakeFixed(std::string_view& rest, size_t n_bytes) {
  if (rest.size() < n_bytes) return std::nullopt;
  uint64_t value = 0;
  for (size_t i = 0; i < n_bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(rest[i])) << (8 * i);
  }
  rest.remove_prefix(n_bytes);
  return value;
}

std::optional<std::string_view> TakeBytes(std::string_view& rest) {
  const std::optional<uint64_t> n_bytes = TakeVarint(rest);
  if (!n_bytes.has_value() || *n_bytes > rest.size()) return std::nullopt;
  const std::string_view bytes = rest.substr(0, *n_bytes);
  rest.remove_prefix(*n_bytes);
  return bytes;
}

// Reads what follows the tag; false if the message ends first or the value is malformed.
bool TakeValue(std::string_view& rest, WireField& field) {
  if (field.wire_type == kBytes) {
    const std::optional<std::string_view> bytes = TakeBytes(rest);
    field.bytes = bytes.value_or("");
    return bytes.has_value();
  }
  std::optional<uint64_t> value;
  if (field.wire_type == kVarint) value = TakeVarint(rest);
  if (field.wire_type == kFixed64) value = TakeFixed(rest, 8);
  if (field.wire_type == kFixed32) value = TakeFixed(rest, 4);
  field.value = value.value_or(0);
  return value.has_value();
}

}  // namespace

absl::StatusOr<uint64_t> WireField::AsVarint() const {
  LK_RETURN_IF_ERROR(CheckWireType(*this, kVarint));
  return value;
}

absl::StatusOr<uint32_t> WireField::AsFixed32() const {
  LK_RETURN_IF_ERROR(CheckWireType(*this, kFixed32));
  return static_cast<uint32_t>(value);
}

absl::StatusOr<std::string_view> WireField::AsBytes() const {
  LK_RETURN_IF_ERROR(CheckWireType(*this, kBytes));
  return bytes;
}

absl::Status ForEachWireField(std::string_view message,
                              absl::FunctionRef<absl::Status(const WireField&)> visit) {
  std::string_view rest = message;
  while (!rest.empty()) {
    const size_t offset = message.size() - rest.size();
    const std::optional<uint64_t> tag = TakeVarint(rest);
    if (!tag.has_value()) return Truncated(offset);
    if (*tag >> 3 == 0 || *tag >> 3 > 0x1FFFFFFF) {
      return absl::InvalidArgumentError(absl::StrCat("malformed message: field number ", *tag >> 3,
                                                     " at byte ", offset,
                                                     ", expected 1 to 536870911"));
    }
    WireField field;
    field.number = static_cast<uint32_t>(*tag >> 3);
    field.wire_type = static_cast<uint32_t>(*tag & 7);
    if (field.wire_type != kVarint && field.wire_type != kFixed64 && field.wire_type != kBytes &&
        field.wire_type != kFixed32) {
      return absl::InvalidArgumentError(absl::StrCat("malformed message: wire type ",
                                                     field.wire_type, " at byte ", offset,
                                                     ", expected 0, 1, 2 or 5"));
    }
    if (!TakeValue(rest, field)) return Truncated(offset);
    LK_RETURN_IF_ERROR(visit(field));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
