// Interpolation of what was measured at some lengths: rates and perplexity ratios.
#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "engine/config/attention_option_table.h"
#include "engine/config/perplexity_ratios.h"
#include "engine/config/selection_rules.h"

namespace lowkey {
namespace {

// Two neighboring points and where between them a length or a number of rows lies, over its
// logarithm: 0..1.
template <typename Point>
struct Between {
  const Point &low, &high;
  double share = 0;

  double operator()(double Point::*value) const {
    return low.*value + share * (high.*value - low.*value);
  }
};

template <typename Point>
Between<Point> FindBetween(const std::vector<Point>& points, int64_t Point::*key, int64_t at) {
  const auto above =
      std::find_if(points.begin(), points.end(), [&](const Point& p) { return p.*key >= at; });
  if (above == points.begin()) return {points.front(), points.front()};
  if (above == points.end()) return {points.back(), points.back()};
  const auto log = [](int64_t n) { return std::log(static_cast<double>(n)); };
  const Point& low = *(above - 1);
  return {low, *above, (log(at) - log(low.*key)) / (log((*above).*key) - log(low.*key))};
}

}  // namespace

std::optional<double> PerplexityRatios::At(int64_t n_tokens) const {
  if (points_.empty()) return std::nullopt;
  return FindBetween(points_, &Point::n_tokens, n_tokens)(&Point::ratio);
}

const std::vector<AttentionRate>* SelectionProfile::RatesOf(const AttentionOptions& options) const {
  auto measured = rates.find(AttentionLabel(options));
  if (measured == rates.end()) {
    const std::string mechanism(MechanismName(options.mechanism));
    measured = std::find_if(rates.begin(), rates.end(), [&](const auto& entry) {
      return entry.first == mechanism || absl::StartsWith(entry.first, mechanism + " ");
    });
  }
  return measured == rates.end() || measured->second.empty() ? nullptr : &measured->second;
}

AttentionRate SelectionProfile::RateAt(const std::vector<AttentionRate>* rates, int64_t n_tokens) {
  if (rates == nullptr) return {n_tokens};
  const auto at = FindBetween(*rates, &AttentionRate::n_tokens, n_tokens);
  return {n_tokens, at(&AttentionRate::prefill), at(&AttentionRate::decode)};
}

double SelectionProfile::LinearRateOf(int64_t n_rows) const {
  return FindBetween(linear, &LinearRate::n_rows, n_rows)(&LinearRate::rate);
}

}  // namespace lowkey
