#include "server/crossover/report.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "server/request.h"

namespace lowkey {
namespace {

constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                    "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};

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

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

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

// A plot with logarithmic axes, as SVG.
class Plot {
 public:
  Plot(const Calibration& calibration, const Quantity& quantity)
      : calibration_(calibration), quantity_(quantity) {
    for (const MechanismCalibration& m : calibration.mechanisms) {
      for (const CalibrationPoint& p : m.points) {
        const double y = quantity.value(p) * quantity.scale;
        if (y <= 0) continue;
        x_min_ = std::min(x_min_, static_cast<double>(p.n_tokens));
        x_max_ = std::max(x_max_, static_cast<double>(p.n_tokens));
        y_min_ = std::min(y_min_, y);
        y_max_ = std::max(y_max_, y);
      }
    }
    if (x_max_ <= x_min_) x_max_ = 2 * x_min_;
    if (y_max_ <= y_min_) y_max_ = 2 * y_min_;
  }

  std::string Svg() const {
    std::string svg = absl::StrFormat(
        "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n"
        "<text x=\"%d\" y=\"16\" class=\"t\">%s</text>\n",
        kWidth, kHeight, kWidth, kHeight, kLeft, quantity_.title);
    AppendGrid(svg);
    for (size_t i = 0; i < calibration_.mechanisms.size(); ++i) AppendLine(i, svg);
    return svg + "</svg>\n";
  }

 private:
  static constexpr int kWidth = 460, kHeight = 320, kLeft = 56, kRight = 12, kTop = 28,
                       kBottom = 36;

  double X(double n) const {
    return kLeft + (kWidth - kLeft - kRight) * std::log(n / x_min_) / std::log(x_max_ / x_min_);
  }
  double Y(double y) const {
    return kHeight - kBottom -
           (kHeight - kTop - kBottom) * std::log(y / y_min_) / std::log(y_max_ / y_min_);
  }

  void AppendGrid(std::string& svg) const {
    for (double n = 64; n <= x_max_ * 1.01; n *= 2) {
      if (n < x_min_ * 0.99) continue;
      absl::StrAppend(
          &svg, absl::StrFormat(
                    "<path d=\"M%.1f %dV%d\" class=\"g\"/><text x=\"%.1f\" y=\"%d\" "
                    "class=\"x\">%s</text>\n",
                    X(n), kTop, kHeight - kBottom, X(n), kHeight - kBottom + 16,
                    n < 1024 ? absl::StrFormat("%.0f", n) : absl::StrFormat("%.0fk", n / 1024)));
    }
    constexpr double kSteps[] = {1, 2, 5};
    const double decade = std::floor(std::log10(y_min_));
    for (int i = 0; i < 60; ++i) {
      const double y = kSteps[i % 3] * std::pow(10, decade + static_cast<double>(i / 3));
      if (y < y_min_ * 0.99) continue;
      if (y > y_max_ * 1.01) break;
      absl::StrAppend(&svg, absl::StrFormat("<path d=\"M%d %.1fH%d\" class=\"g\"/><text x=\"%d\" "
                                            "y=\"%.1f\" class=\"y\">%g</text>\n",
                                            kLeft, Y(y), kWidth - kRight, kLeft - 6, Y(y) + 4, y));
    }
    absl::StrAppend(&svg, absl::StrFormat("<text x=\"%d\" y=\"%d\" class=\"x\">tokens</text>\n",
                                          (kLeft + kWidth) / 2, kHeight - 4));
  }

  void AppendLine(size_t index, std::string& svg) const {
    const MechanismCalibration& m = calibration_.mechanisms[index];
    const char* colour = kColours[index % std::size(kColours)];
    std::string path;
    for (const CalibrationPoint& p : m.points) {
      const double y = quantity_.value(p) * quantity_.scale;
      if (y <= 0) continue;
      absl::StrAppend(&path, path.empty() ? "M" : "L",
                      absl::StrFormat("%.1f %.1f", X(static_cast<double>(p.n_tokens)), Y(y)));
    }
    absl::StrAppend(&svg, "<path d=\"", path, "\" fill=\"none\" stroke-width=\"2\" stroke=\"",
                    colour, "\"/>\n");
    const MechanismCalibration* standard = StandardOf(calibration_);
    if (standard == nullptr || standard == &m) return;
    const auto at = CrossoverOf(*standard, m, quantity_);
    if (!at.has_value() || *at < x_min_ || *at > x_max_) return;
    absl::StrAppend(&svg, absl::StrFormat("<path d=\"M%.1f %dV%d\" stroke=\"%s\" "
                                          "stroke-dasharray=\"4 3\"/>\n",
                                          X(*at), kTop, kHeight - kBottom, colour));
  }

  const Calibration& calibration_;
  const Quantity& quantity_;
  double x_min_ = 1e30, x_max_ = 1, y_min_ = 1e30, y_max_ = 1e-30;
};

std::string LegendHtml(const Calibration& calibration) {
  std::string html = "<p class=\"l\">";
  for (size_t i = 0; i < calibration.mechanisms.size(); ++i) {
    absl::StrAppend(&html, "<span style=\"color:", kColours[i % std::size(kColours)],
                    "\">&#9632;</span> ",
                    Escaped(AttentionLabel(calibration.mechanisms[i].options)), " &nbsp; ");
  }
  return html + "<br>Dashed: from there on a mechanism costs no more than standard.</p>\n";
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
  std::string html = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>", Escaped(title),
      "</title>\n<style>body{font:14px sans-serif;margin:24px;color:#222}svg{margin-right:12px}"
      ".t{font-weight:bold}.g{stroke:#ddd}.x{text-anchor:middle;font-size:11px;fill:#555}"
      ".y{text-anchor:end;font-size:11px;fill:#555}pre{font-size:12px}</style>\n<h1>",
      Escaped(title), "</h1>\n", LegendHtml(calibration));
  for (const Quantity& quantity : kQuantities) {
    absl::StrAppend(&html, Plot(calibration, quantity).Svg());
  }
  return absl::StrCat(html, "<pre>", Escaped(CalibrationText(calibration)), "</pre>\n</html>\n");
}

}  // namespace lowkey
