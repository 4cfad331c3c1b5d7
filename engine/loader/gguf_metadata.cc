#include "engine/loader/gguf_metadata.h"

#include <cmath>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr size_t kMaxKeyBytes = 65535;
constexpr size_t kMaxShownBytes = 64;
// The charges for a key, and for an item of an array as a getter returns it: a string with what a
// vocabulary makes of it.
constexpr size_t kKeyBytes = 128, kNumberBytes = 8, kStringBytes = 128;

struct TypeInfo {
  const char* name;
  size_t bytes;            // 0: of no fixed size
  bool is_signed = false;  // of integers
};
constexpr TypeInfo kTypes[] = {
    {"uint8", 1},       {"int8", 1, true},  {"uint16", 2},  {"int16", 2, true}, {"uint32", 4},
    {"int32", 4, true}, {"float32", 4},     {"bool", 1},    {"string", 0},      {"array", 0},
    {"uint64", 8},      {"int64", 8, true}, {"float64", 8},
};

const TypeInfo& InfoOf(GgufType type) { return kTypes[static_cast<uint32_t>(type)]; }

bool IsString(GgufType type) { return type == GgufType::kString; }
bool IsFloat32(GgufType type) { return type == GgufType::kFloat32; }
bool IsFloat(GgufType type) { return type == GgufType::kFloat32 || type == GgufType::kFloat64; }
bool IsInt(GgufType type) {
  return InfoOf(type).bytes > 0 && !IsFloat(type) && type != GgufType::kBool;
}

// Returns untrusted bytes as they may stand in a message.
std::string Shown(std::string_view text) {
  const std::string cut(text.substr(0, kMaxShownBytes));
  return absl::StrCat(absl::CHexEscape(cut), text.size() > kMaxShownBytes ? "..." : "");
}

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// Returns element `index` of integers; nullopt when it does not fit int64.
std::optional<int64_t> LoadInt(GgufType type, const std::byte* items, uint64_t index) {
  const TypeInfo& info = InfoOf(type);
  uint64_t bits = 0;
  std::memcpy(&bits, items + index * info.bytes, info.bytes);
  if (info.is_signed) {
    const size_t unused = 64 - 8 * info.bytes;  // the shifts copy the sign into these bits
    return static_cast<int64_t>(bits << unused) >> unused;
  }
  if (bits > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
  return static_cast<int64_t>(bits);
}

double LoadReal(GgufType type, const std::byte* at) {
  return type == GgufType::kFloat32 ? double{Load<float>(at)} : Load<double>(at);
}

absl::StatusOr<GgufType> ReadType(ByteReader& reader) {
  const auto number = reader.Number<uint32_t>();
  if (!number.has_value()) return absl::InvalidArgumentError("cut short before its type");
  if (*number >= std::size(kTypes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("type ", *number, ", expected 0..", std::size(kTypes) - 1));
  }
  return static_cast<GgufType>(*number);
}

absl::Status CutShort(uint64_t wanted, GgufType type, size_t n_left_bytes) {
  return absl::InvalidArgumentError(absl::StrCat(wanted, " of type ", InfoOf(type).name,
                                                 ", expected what fits in the ", n_left_bytes,
                                                 " bytes left in the file"));
}

// Returns the bytes of `count` values of one type, after checking every length.
absl::StatusOr<absl::Span<const std::byte>> TakeItems(ByteReader& reader, GgufType type,
                                                      uint64_t count) {
  const size_t item_bytes = InfoOf(type).bytes;
  const size_t n_left = reader.n_left();
  const size_t least_bytes = item_bytes > 0 ? item_bytes : sizeof(uint64_t);  // a string's length
  if (count > n_left / least_bytes) return CutShort(count, type, n_left);
  if (item_bytes > 0) return *reader.Take(count * item_bytes);
  ByteReader walk = reader;
  for (uint64_t i = 0; i < count; ++i) {
    if (!walk.String().has_value()) return CutShort(count, type, n_left);
  }
  return *reader.Take(walk.position() - reader.position());
}

// Charges for an array's items, which are fewer than the file's bytes, before they are walked over.
absl::Status ChargeItems(GgufType type, uint64_t count, LoadAccount& account) {
  const size_t item_bytes = IsString(type) ? kStringBytes : kNumberBytes;
  return account.Charge(absl::StrCat("an array of ", count), count * item_bytes);
}

}  // namespace

absl::StatusOr<GgufMetadata::Value> GgufMetadata::ReadValue(ByteReader& reader,
                                                            LoadAccount& account) {
  Value value;
  LK_ASSIGN_OR_RETURN(value.type, ReadType(reader));
  value.item_type = value.type;
  if (value.type == GgufType::kArray) {
    LK_ASSIGN_OR_RETURN(value.item_type, ReadType(reader));
    if (value.item_type == GgufType::kArray) {
      return absl::UnimplementedError("an array of arrays, expected one of numbers or strings");
    }
    const auto count = reader.Number<uint64_t>();
    if (!count.has_value()) return absl::InvalidArgumentError("cut short before its count");
    value.count = *count;
    // More than fits in the file is refused below, whatever it would cost.
    if (value.count <= reader.n_left()) {
      LK_RETURN_IF_ERROR(ChargeItems(value.item_type, value.count, account));
    }
  }
  LK_ASSIGN_OR_RETURN(value.bytes, TakeItems(reader, value.item_type, value.count));
  if (IsString(value.item_type)) {
    LK_RETURN_IF_ERROR(account.Charge("strings", value.bytes.size()));
  }
  return value;
}

absl::StatusOr<GgufMetadata> GgufMetadata::Read(ByteReader& reader, uint64_t count,
                                                const std::string& name, LoadAccount& account) {
  GgufMetadata metadata;
  metadata.name_ = name;
  for (uint64_t i = 0; i < count; ++i) {
    const auto key = reader.String();
    if (!key.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ends in metadata key ", i, ", expected ", count, " keys"));
    }
    if (key->empty() || key->size() > kMaxKeyBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": metadata key ", i, ": ", key->size(),
                                                     " bytes, expected 1..", kMaxKeyBytes));
    }
    LK_RETURN_IF_ERROR(account.Charge(name, kKeyBytes));
    auto value = ReadValue(reader, account);
    if (!value.ok()) {
      return absl::Status(
          value.status().code(),
          absl::StrCat(name, ": ", Shown(*key), ": ", std::string(value.status().message())));
    }
    if (!metadata.values_.emplace(*key, *value).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", Shown(*key), ": twice, expected each key once"));
    }
  }
  return metadata;
}

const GgufMetadata::Value* GgufMetadata::Find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

bool GgufMetadata::IsArray(std::string_view key) const {
  const Value* value = Find(key);
  return value != nullptr && value->type == GgufType::kArray;
}

absl::Status GgufMetadata::Error(std::string_view key, const std::string& expected) const {
  const Value* value = Find(key);
  std::string shown = "missing";
  if (value != nullptr && value->type == GgufType::kArray) {
    shown = absl::StrCat("an array of ", value->count, " ", InfoOf(value->item_type).name);
  } else if (value != nullptr && value->type == GgufType::kString) {
    shown = absl::StrCat("\"", Shown(*ByteReader(value->bytes).String()), "\"");
  } else if (value != nullptr && IsFloat(value->type)) {
    shown = absl::StrCat(LoadReal(value->type, value->bytes.data()));
  } else if (value != nullptr && value->type == GgufType::kBool) {
    shown = absl::StrCat("bool ", std::to_integer<int>(value->bytes[0]));
  } else if (value != nullptr) {
    const auto number = LoadInt(value->type, value->bytes.data(), 0);
    shown = number.has_value() ? absl::StrCat(*number) : "over 2^63";
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": ", Shown(key), ": ", shown, ", expected ", expected));
}

absl::StatusOr<std::optional<int64_t>> GgufMetadata::Int(std::string_view key, int64_t min,
                                                         int64_t max) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = absl::StrCat(min, "..", max);
  if (!IsInt(value->type)) return Error(key, expected);
  const auto number = LoadInt(value->type, value->bytes.data(), 0);
  if (!number.has_value() || *number < min || *number > max) return Error(key, expected);
  return number;
}

absl::StatusOr<int64_t> GgufMetadata::RequiredInt(std::string_view key, int64_t min,
                                                  int64_t max) const {
  LK_ASSIGN_OR_RETURN(const auto number, Int(key, min, max));
  if (!number.has_value()) return Error(key, absl::StrCat(min, "..", max));
  return *number;
}

absl::StatusOr<std::optional<double>> GgufMetadata::Number(std::string_view key, double min,
                                                           double max) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = absl::StrCat("a number in ", min, "..", max);
  double number = 0;
  if (IsFloat(value->type)) {
    number = LoadReal(value->type, value->bytes.data());
  } else if (IsInt(value->type)) {
    const auto integer = LoadInt(value->type, value->bytes.data(), 0);
    if (!integer.has_value()) return Error(key, expected);
    number = static_cast<double>(*integer);
  } else {
    return Error(key, expected);
  }
  if (!(number >= min && number <= max) || std::isinf(number)) return Error(key, expected);
  return number;
}

absl::StatusOr<std::optional<bool>> GgufMetadata::Bool(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool || value->bytes[0] > std::byte{1}) {
    return Error(key, "bool 0 or 1");
  }
  return value->bytes[0] == std::byte{1};
}

absl::StatusOr<std::optional<std::string_view>> GgufMetadata::String(std::string_view key) const {
  const Value* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) return Error(key, "a string");
  return ByteReader(value->bytes).String();
}

absl::StatusOr<const GgufMetadata::Value*> GgufMetadata::FindArray(
    std::string_view key, bool (*is_wanted)(GgufType), const std::string& expected) const {
  const Value* value = Find(key);
  if (value == nullptr) return nullptr;
  if (value->type != GgufType::kArray || !is_wanted(value->item_type)) return Error(key, expected);
  return value;
}

absl::StatusOr<std::optional<std::vector<std::string_view>>> GgufMetadata::Strings(
    std::string_view key) const {
  LK_ASSIGN_OR_RETURN(const Value* array, FindArray(key, IsString, "an array of strings"));
  if (array == nullptr) return std::nullopt;
  std::vector<std::string_view> strings;
  strings.reserve(array->count);
  ByteReader reader(array->bytes);
  for (uint64_t i = 0; i < array->count; ++i) strings.push_back(*reader.String());
  return strings;
}

absl::StatusOr<std::optional<std::vector<float>>> GgufMetadata::Floats(std::string_view key) const {
  LK_ASSIGN_OR_RETURN(const Value* array, FindArray(key, IsFloat32, "an array of float32"));
  if (array == nullptr) return std::nullopt;
  std::vector<float> floats(array->count);
  if (!floats.empty()) std::memcpy(floats.data(), array->bytes.data(), array->bytes.size());
  return floats;
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufMetadata::Ints(std::string_view key) const {
  const std::string expected = "an array of integers below 2^63";
  LK_ASSIGN_OR_RETURN(const Value* array, FindArray(key, IsInt, expected));
  if (array == nullptr) return std::nullopt;
  std::vector<int64_t> ints;
  ints.reserve(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    const auto number = LoadInt(array->item_type, array->bytes.data(), i);
    if (!number.has_value()) return Error(key, expected);
    ints.push_back(*number);
  }
  return ints;
}

}  // namespace lowkey
