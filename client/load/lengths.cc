#include "client/load/lengths.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lowkey {
namespace {

constexpr double kMaxSigma = 10;

std::optional<int32_t> ParseLength(absl::string_view text) {
  int32_t length = 0;
  if (!absl::SimpleAtoi(text, &length) || length < 1 || length > kMaxLength) return std::nullopt;
  return length;
}

std::optional<LengthDistribution> ParseUniform(absl::string_view text) {
  const std::pair<std::string, std::string> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  const std::optional<int32_t> min = ParseLength(ends.first), max = ParseLength(ends.second);
  if (!min.has_value() || !max.has_value() || *min > *max) return std::nullopt;
  return UniformLengths{*min, *max};
}

std::optional<LengthDistribution> ParseLognormal(absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(',', 1));
  LognormalLengths lengths;
  if (!absl::SimpleAtod(parts.first, &lengths.median) ||
      !absl::SimpleAtod(parts.second, &lengths.sigma)) {
    return std::nullopt;
  }
  const bool is_valid = lengths.median >= 1 && lengths.median <= kMaxLength && lengths.sigma >= 0 &&
                        lengths.sigma <= kMaxSigma;
  return is_valid ? std::optional<LengthDistribution>(lengths) : std::nullopt;
}

std::optional<LengthDistribution> Parse(absl::string_view text) {
  if (absl::ConsumePrefix(&text, "uniform:")) return ParseUniform(text);
  if (absl::ConsumePrefix(&text, "lognormal:")) return ParseLognormal(text);
  const std::optional<int32_t> length = ParseLength(text);
  if (!length.has_value()) return std::nullopt;
  return UniformLengths{*length, *length};
}

}  // namespace

absl::StatusOr<LengthDistribution> ParseLengths(const std::string& text) {
  const std::optional<LengthDistribution> lengths = Parse(text);
  if (lengths.has_value()) return *lengths;
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\", expected tokens in 1..", kMaxLength,
      " as N, uniform:MIN-MAX, or lognormal:MEDIAN,SIGMA with sigma in 0..", kMaxSigma));
}

int32_t DrawLength(const LengthDistribution& lengths, std::mt19937_64& random) {
  if (const auto* uniform = std::get_if<UniformLengths>(&lengths)) {
    return std::uniform_int_distribution<int32_t>(uniform->min, uniform->max)(random);
  }
  const LognormalLengths& lognormal = std::get<LognormalLengths>(lengths);
  std::lognormal_distribution<double> draw(std::log(lognormal.median), lognormal.sigma);
  const double length = std::round(draw(random));
  return static_cast<int32_t>(std::clamp(length, 1.0, static_cast<double>(kMaxLength)));
}

int32_t MinLength(const LengthDistribution& lengths) {
  const auto* uniform = std::get_if<UniformLengths>(&lengths);
  return uniform == nullptr ? 1 : uniform->min;
}

}  // namespace lowkey
