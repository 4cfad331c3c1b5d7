#include "server/request/trace_context.h"

#include <algorithm>
#include <vector>

namespace lowkey {
namespace {

// version "-" trace-id "-" parent-id "-" trace-flags
constexpr size_t kTraceIdAt = 3, kParentIdAt = 36, kFlagsAt = 53, kVersion00Bytes = 55;
constexpr uint8_t kSampledFlag = 1;
constexpr size_t kMaxKeyBytes = 256, kMaxValueBytes = 256;

std::optional<uint8_t> DigitOf(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

// Reads the first 2 * bytes.size() digits of `text`, which has as many.
bool ReadHex(std::string_view text, absl::Span<uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const std::optional<uint8_t> high = DigitOf(text[2 * i]), low = DigitOf(text[2 * i + 1]);
    if (!high.has_value() || !low.has_value()) return false;
    bytes[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  return true;
}

template <typename Id>
bool IsZero(const Id& id) {
  return std::all_of(id.begin(), id.end(), [](uint8_t byte) { return byte == 0; });
}

bool IsKey(std::string_view key) {
  if (key.empty() || key.size() > kMaxKeyBytes) return false;
  const auto is_alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (!is_alnum(key[0]) || std::count(key.begin(), key.end(), '@') > 1) return false;
  return std::all_of(key.begin(), key.end(), [&](char c) {
    return is_alnum(c) || std::string_view("_-*/@").find(c) != std::string_view::npos;
  });
}

bool IsValue(std::string_view value) {
  if (value.empty() || value.size() > kMaxValueBytes || value.back() == ' ') return false;
  return std::all_of(value.begin(), value.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != ',' && c != '='; });
}

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

std::string HexOf(absl::Span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

std::optional<TraceContext> ParseTraceParent(std::string_view value) {
  if (value.size() < kVersion00Bytes) return std::nullopt;
  uint8_t version = 0, flags = 0;
  TraceContext context;
  if (!ReadHex(value, {&version, 1}) || version == 0xff ||
      !ReadHex(value.substr(kTraceIdAt), absl::MakeSpan(context.trace_id)) ||
      !ReadHex(value.substr(kParentIdAt), absl::MakeSpan(context.parent_id)) ||
      !ReadHex(value.substr(kFlagsAt), {&flags, 1})) {
    return std::nullopt;
  }
  for (const size_t at : {kTraceIdAt, kParentIdAt, kFlagsAt}) {
    if (value[at - 1] != '-') return std::nullopt;
  }
  // Later versions may add fields.
  if (value.size() > kVersion00Bytes && (version == 0 || value[kVersion00Bytes] != '-')) {
    return std::nullopt;
  }
  if (IsZero(context.trace_id) || IsZero(context.parent_id)) return std::nullopt;
  context.is_sampled = (flags & kSampledFlag) != 0;
  return context;
}

std::optional<std::string> ParseTraceState(std::string_view value) {
  std::vector<std::string_view> keys;
  std::string state;
  // Blanks and empty members may make a value longer than what is left of it, within reason.
  if (value.size() > 4 * kMaxTraceStateBytes) return std::nullopt;
  for (size_t at = 0; at <= value.size();) {
    const size_t comma = std::min(value.find(',', at), value.size());
    const std::string_view member = WithoutBlanks(value.substr(at, comma - at));
    at = comma + 1;
    if (member.empty()) continue;
    const size_t equals = member.find('=');
    if (equals == std::string_view::npos || !IsKey(member.substr(0, equals)) ||
        !IsValue(member.substr(equals + 1)) || keys.size() == kMaxTraceStateMembers) {
      return std::nullopt;
    }
    keys.push_back(member.substr(0, equals));
    if (!state.empty()) state.push_back(',');
    state.append(member);
  }
  std::sort(keys.begin(), keys.end());
  if (std::adjacent_find(keys.begin(), keys.end()) != keys.end()) return std::nullopt;
  if (state.size() > kMaxTraceStateBytes) return std::nullopt;
  return state;
}

}  // namespace lowkey
