#include "tools/crossover_report.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/plot.h"
#include "server/request.h"

namespace lowkey {
namespace {

double CacheBytes(const CalibrationPoint& p) { return static_cast<double>(p.cache_bytes); }
double PrefillSeconds(const CalibrationPoint& p) { return p.prefill_seconds; }
double DecodeSeconds(const CalibrationPoint& p) { return p.decode_seconds; }

// What a plot or a column shows.
struct Quantity {
  const char* title;
  double (*value)(const CalibrationPoint&);
  double scale;                       // to the unit of the title
  double CalibrationPoint::*seconds;  // of times; nullptr: bytes
};
constexpr Quantity kQuantities[] = {
    {"prefill, s", PrefillSeconds, 1, &CalibrationPoint::prefill_seconds},
    {"decode, ms a token", DecodeSeconds, 1e3, &CalibrationPoint::decode_seconds},
    {"cache, MiB", CacheBytes, 1.0 / (1 << 20), nullptr},
};

const MechanismCalibration* StandardOf(const Calibration& c) {
  for (const MechanismCalibration& m : c.mechanisms) {
    if (m.options.mechanism == Mechanism::kStandard) return &m;
  }
  return nullptr;
}

// The first measured length at which a mechanism holds less than standard.
std::optional<double> MemoryCrossover(const MechanismCalibration& from,
                                      const MechanismCalibration& to) {
  for (size_t i = 0; i < std::min(from.points.size(), to.points.size()); ++i) {
    if (to.points[i].cache_bytes < from.points[i].cache_bytes) {
      return static_cast<double>(to.points[i].n_tokens);
    }
  }
  return std::nullopt;
}

std::optional<double> CrossoverOf(const MechanismCalibration& from, const MechanismCalibration& to,
                                  const Quantity& quantity) {
  return quantity.seconds == nullptr ? MemoryCrossover(from, to)
                                     : MeasuredCrossover(from, to, quantity.seconds);
}

std::string CrossoverText(std::optional<double> tokens) {
  return tokens.has_value() ? absl::StrFormat("%.0f", *tokens) : "-";
}

// One quantity against length, with every mechanism's line.
std::string QuantitySvg(const Calibration& calibration, const Quantity& quantity) {
  Plot plot{quantity.title, {"tokens", PlotScale::kBinary}, {"", PlotScale::kLogarithmic}, {}};
  const MechanismCalibration* standard = StandardOf(calibration);
  for (const MechanismCalibration& m : calibration.mechanisms) {
    PlotSeries& series = plot.series.emplace_back();
    for (const CalibrationPoint& p : m.points) {
      series.points.push_back(
          {static_cast<double>(p.n_tokens), quantity.value(p) * quantity.scale});
    }
    if (standard != nullptr && standard != &m)
      series.crossover = CrossoverOf(*standard, m, quantity);
  }
  return PlotSvg(plot);
}

}  // namespace

std::string CalibrationText(const Calibration& calibration) {
  std::string text;
  for (const MechanismCalibration& m : calibration.mechanisms) {
    absl::StrAppend(&text, AttentionLabel(m.options), "\n",
                    absl::StrFormat("  %8s  %12s  %14s  %12s  %14s\n", "tokens", "prefill s",
                                    "decode ms", "cache MiB", "decode Gmac/s"));
    for (const CalibrationPoint& p : m.points) {
      absl::StrAppend(&text, absl::StrFormat("  %8d  %12.3f  %14.3f  %12.2f  %14.2f\n", p.n_tokens,
                                             p.prefill_seconds, p.decode_seconds * 1e3,
                                             CacheBytes(p) / (1 << 20),
                                             p.decode_work / p.decode_seconds / 1e9));
    }
  }
  const MechanismCalibration* standard = StandardOf(calibration);
  if (standard == nullptr || calibration.mechanisms.size() < 2) return text;
  absl::StrAppend(&text,
                  "\nLengths from which a mechanism costs no more than standard (-: none here)\n",
                  absl::StrFormat("  %-60s  %9s  %9s  %9s\n", "", "prefill", "decode", "cache"));
  for (const MechanismCalibration& m : calibration.mechanisms) {
    if (&m == standard) continue;
    absl::StrAppend(&text, absl::StrFormat("  %-60s", AttentionLabel(m.options)));
    for (const Quantity& q : kQuantities) {
      absl::StrAppend(&text, absl::StrFormat("  %9s", CrossoverText(CrossoverOf(*standard, m, q))));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string CalibrationHtml(const Calibration& calibration, const std::string& title) {
  std::vector<std::string> names;
  for (const MechanismCalibration& m : calibration.mechanisms) {
    names.push_back(AttentionLabel(m.options));
  }
  std::string body =
      LegendHtml(names) + "<p>Dashed: from there on a mechanism costs no more than standard.</p>\n";
  for (const Quantity& quantity : kQuantities) {
    absl::StrAppend(&body, QuantitySvg(calibration, quantity));
  }
  absl::StrAppend(&body, "<pre>", HtmlEscaped(CalibrationText(calibration)), "</pre>\n");
  return HtmlPage(title, body);
}

}  // namespace lowkey
