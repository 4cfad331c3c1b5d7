// Reads flags' texts as numbers. Texts come from users: every number is checked before it is used.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/config/flags.h"

namespace lowkey {
namespace {

constexpr double kMaxSeconds = 86400;

struct Unit {
  std::string_view name;
  double factor;
};
constexpr Unit kByteUnits[] = {{"", 1}, {"k", 0x1p10}, {"m", 0x1p20}, {"g", 0x1p30}, {"t", 0x1p40}};
constexpr Unit kTimeUnits[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};

// Returns the amount of a number and its unit, such as "512m"; nullopt if it is over `max`, too.
std::optional<double> ParseAmount(std::string_view text, absl::Span<const Unit> units, double max) {
  const size_t n_digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  if (!absl::SimpleAtod(std::string(text.substr(0, n_digits)), &number)) return std::nullopt;
  for (const Unit& unit : units) {
    if (unit.name != text.substr(n_digits)) continue;
    return number * unit.factor <= max ? std::optional(number * unit.factor) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::pair<int32_t, float>> ParseBias(absl::string_view item) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(item, absl::MaxSplits(':', 1));
  int32_t id = 0;
  float bias = 0;
  if (!absl::SimpleAtoi(parts.first, &id) || !absl::SimpleAtof(parts.second, &bias)) {
    return std::nullopt;
  }
  return std::make_pair(id, bias);
}

}  // namespace

const FlagValues::Value* FlagValues::Find(std::string_view name) const {
  const auto it = values_.find(std::string(name));
  return it == values_.end() ? nullptr : &it->second;
}

bool FlagValues::IsGiven(std::string_view name) const {
  const Value* value = Find(name);
  return value != nullptr && value->is_given;
}

bool FlagValues::Has(std::string_view name) const { return Find(name) != nullptr; }

std::string FlagValues::Text(std::string_view name) const {
  const Value* value = Find(name);
  return value == nullptr ? "" : value->texts.back();
}

std::vector<std::string> FlagValues::Texts(std::string_view name) const {
  const Value* value = Find(name);
  return value == nullptr ? std::vector<std::string>() : value->texts;
}

absl::Status FlagValues::Error(std::string_view name, std::string_view expected) const {
  const Value* value = Find(name);
  if (value == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", std::string(name), ": not given, expected ", std::string(expected)));
  }
  return absl::InvalidArgumentError(absl::StrCat(value->origin, ": \"", value->texts.back(),
                                                 "\", expected ", std::string(expected)));
}

absl::Status FlagValues::RequireNone(absl::Span<const std::string_view> names,
                                     std::string_view expected) const {
  for (const std::string_view name : names) {
    const Value* value = Find(name);
    const bool is_said = value != nullptr && value->is_given && value->origin.starts_with("--");
    if (is_said) return Error(name, expected);
  }
  return absl::OkStatus();
}

absl::Status FlagValues::RequireFiles(std::initializer_list<std::string_view> names) const {
  for (std::string_view name : names) {
    if (!Has(name)) return Error(name, "FILE");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> FlagValues::Int(std::string_view name, int64_t min,
                                                       int64_t max) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  int64_t number = 0;
  if (!absl::SimpleAtoi(value->texts.back(), &number) || number < min || number > max) {
    return Error(name, absl::StrCat("an integer in ", min, "..", max));
  }
  return number;
}

absl::StatusOr<std::optional<double>> FlagValues::Number(std::string_view name) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  double number = 0;
  if (!absl::SimpleAtod(value->texts.back(), &number) || !std::isfinite(number)) {
    return Error(name, "a number");
  }
  return number;
}

absl::StatusOr<std::optional<uint64_t>> FlagValues::Seed(std::string_view name) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(value->texts.back(), &number)) {
    return Error(name, absl::StrCat("an integer in 0..", std::numeric_limits<uint64_t>::max()));
  }
  return number;
}

absl::StatusOr<std::optional<int64_t>> FlagValues::Bytes(std::string_view name) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::string text = absl::AsciiStrToLower(value->texts.back());
  std::string_view amount = text;
  for (const std::string_view suffix : {"ib", "b"}) {
    if (amount.ends_with(suffix)) amount.remove_suffix(suffix.size());
  }
  const std::optional<double> bytes = ParseAmount(amount, kByteUnits, 0x1p50);
  if (bytes.has_value()) return static_cast<int64_t>(*bytes);
  return Error(name, "bytes such as 1048576, 512M or 2G, at most 1024T");
}

absl::StatusOr<std::optional<double>> FlagValues::Seconds(std::string_view name) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::string text = absl::AsciiStrToLower(value->texts.back());
  const std::optional<double> seconds = ParseAmount(text, kTimeUnits, kMaxSeconds);
  if (seconds.has_value()) return seconds;
  return Error(name, "a time such as 30, 30s, 500ms or 2m, at most 24h");
}

absl::Status FlagValues::ReadSeconds(std::string_view name, absl::Duration& to) const {
  LK_ASSIGN_OR_RETURN(const std::optional<double> seconds, Seconds(name));
  if (seconds.has_value()) to = absl::Seconds(*seconds);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::pair<int32_t, float>>> FlagValues::IdBiases(
    std::string_view name) const {
  std::vector<std::pair<int32_t, float>> biases;
  const Value* value = Find(name);
  if (value == nullptr) return biases;
  for (absl::string_view item : absl::StrSplit(value->texts.back(), ',', absl::SkipEmpty())) {
    const std::optional<std::pair<int32_t, float>> bias = ParseBias(item);
    if (!bias.has_value() || biases.size() == kMaxBiases) {
      return Error(name, absl::StrCat("ID:VALUE,... such as 5:-100,17:2.5, at most ", kMaxBiases));
    }
    biases.push_back(*bias);
  }
  return biases;
}

}  // namespace lowkey
