// Reads flags' texts as numbers. Texts come from users: every number is checked before it is used.
#include <charconv>
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

// The parts of a text: 512 and "m" for "512M".
struct NumberAndUnit {
  double number = 0;
  std::string unit;  // lower case
};

std::optional<NumberAndUnit> SplitUnit(std::string_view text) {
  size_t n_digits = 0;
  while (n_digits < text.size() && (absl::ascii_isdigit(text[n_digits]) || text[n_digits] == '.')) {
    ++n_digits;
  }
  NumberAndUnit parts;
  if (n_digits == 0 || !absl::SimpleAtod(std::string(text.substr(0, n_digits)), &parts.number)) {
    return std::nullopt;
  }
  parts.unit = absl::AsciiStrToLower(std::string(text.substr(n_digits)));
  return parts;
}

std::optional<double> UnitBytes(std::string_view unit) {
  if (unit.ends_with("ib")) unit.remove_suffix(2);
  if (unit.ends_with("b")) unit.remove_suffix(1);
  if (unit.empty()) return 1.0;
  if (unit == "k") return 0x1p10;
  if (unit == "m") return 0x1p20;
  if (unit == "g") return 0x1p30;
  if (unit == "t") return 0x1p40;
  return std::nullopt;
}

std::optional<double> UnitSeconds(std::string_view unit) {
  if (unit.empty() || unit == "s") return 1.0;
  if (unit == "ms") return 1e-3;
  if (unit == "m") return 60.0;
  if (unit == "h") return 3600.0;
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
  const std::optional<NumberAndUnit> parts = SplitUnit(value->texts.back());
  const std::optional<double> unit = parts.has_value() ? UnitBytes(parts->unit) : std::nullopt;
  if (!unit.has_value() || parts->number * *unit > 0x1p50) {
    return Error(name, "bytes such as 1048576, 512M or 2G, at most 1024T");
  }
  return static_cast<int64_t>(parts->number * *unit);
}

absl::StatusOr<std::optional<double>> FlagValues::Seconds(std::string_view name) const {
  const Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<NumberAndUnit> parts = SplitUnit(value->texts.back());
  const std::optional<double> unit = parts.has_value() ? UnitSeconds(parts->unit) : std::nullopt;
  if (!unit.has_value() || parts->number * *unit > kMaxSeconds) {
    return Error(name, "a time such as 30, 30s, 500ms or 2m, at most 24h");
  }
  return parts->number * *unit;
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
