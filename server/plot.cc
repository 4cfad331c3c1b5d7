#include "server/plot.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace lowkey {
namespace {

constexpr const char* kColors[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                   "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};
constexpr int kWidth = 460, kHeight = 320, kLeft = 56, kRight = 16, kTop = 28, kBottom = 36;

const char* Color(size_t series) { return kColors[series % std::size(kColors)]; }

struct Tick {
  double value = 0;
  std::string label;
};

// One axis of a plot: the range of its values, and where they stand on the picture.
class Scale {
 public:
  Scale(PlotScale kind, int begin_px, int end_px)
      : kind_(kind), begin_px_(begin_px), end_px_(end_px) {}

  bool CanShow(double value) const {
    return std::isfinite(value) && (kind_ == PlotScale::kLinear ? value >= 0 : value > 0);
  }
  void Include(double value) {
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }
  void Close() {
    if (min_ > max_) min_ = max_ = 1;  // no point at all
    if (kind_ == PlotScale::kLinear) {
      min_ = 0;
      max_ = max_ > 0 ? 1.05 * max_ : 1;
    } else if (max_ <= min_) {
      max_ = 2 * min_;
    }
  }
  double Px(double value) const {
    const double share = kind_ == PlotScale::kLinear
                             ? (value - min_) / (max_ - min_)
                             : std::log(value / min_) / std::log(max_ / min_);
    return begin_px_ + share * (end_px_ - begin_px_);
  }
  bool IsInside(double value) const {
    const double slack = 0.01 * (kind_ == PlotScale::kLinear ? max_ - min_ : min_);
    return value >= min_ - slack && value <= max_ * 1.01;
  }

  std::vector<Tick> Ticks() const {
    if (kind_ == PlotScale::kLinear) return LinearTicks();
    return kind_ == PlotScale::kBinary ? BinaryTicks() : DecimalTicks();
  }

 private:
  std::vector<Tick> LinearTicks() const {
    const double decade = std::pow(10, std::floor(std::log10(max_ / 5)));
    double step = 10 * decade;
    for (const double multiple : {5, 2, 1}) {
      if (multiple * decade >= max_ / 6) step = multiple * decade;
    }
    std::vector<Tick> ticks;
    for (int i = 0; i * step <= max_; ++i) {
      ticks.push_back({i * step, absl::StrFormat("%g", i * step)});
    }
    return ticks;
  }

  std::vector<Tick> BinaryTicks() const {
    std::vector<Tick> ticks;
    for (double value = 1; value <= max_ * 1.01; value *= 2) {
      if (!IsInside(value)) continue;
      ticks.push_back({value, value < 1024 ? absl::StrFormat("%.0f", value)
                                           : absl::StrFormat("%.0fk", value / 1024)});
    }
    return ticks;
  }

  std::vector<Tick> DecimalTicks() const {
    constexpr double kSteps[] = {1, 2, 5};
    const bool is_wide = max_ / min_ > 1e4;
    const double decade = std::floor(std::log10(min_));
    std::vector<Tick> ticks;
    for (int i = 0; i < 60; ++i) {
      const double value = kSteps[i % 3] * std::pow(10, decade + static_cast<double>(i / 3));
      if (!IsInside(value) || (is_wide && i % 3 != 0)) continue;
      ticks.push_back({value, absl::StrFormat("%g", value)});
    }
    return ticks;
  }

  const PlotScale kind_;
  const int begin_px_, end_px_;
  double min_ = 1e300, max_ = -1e300;
};

class Picture {
 public:
  explicit Picture(const Plot& plot)
      : plot_(plot),
        x_(plot.x.scale, kLeft, kWidth - kRight),
        y_(plot.y.scale, kHeight - kBottom, kTop) {
    for (const PlotSeries& series : plot.series) {
      for (const auto* points : {&series.points, &series.dots}) {
        for (const PlotPoint& p : *points) {
          if (!CanShow(p)) continue;
          x_.Include(p.x);
          y_.Include(p.y);
        }
      }
    }
    x_.Close();
    y_.Close();
  }

  std::string Svg() {
    svg_ = absl::StrFormat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\" role=\"img\" font-family=\"sans-serif\">\n<style>.t{font-size:14px;"
        "font-weight:bold}.g{stroke:#ddd}.x,.y,.n{font-size:11px;fill:#555}.x{text-anchor:middle}"
        ".y{text-anchor:end}</style>\n<text x=\"%d\" y=\"16\" class=\"t\">%s</text>\n",
        kWidth, kHeight, kWidth, kHeight, kLeft, HtmlEscaped(plot_.title));
    AppendGrid();
    for (size_t i = 0; i < plot_.series.size(); ++i) AppendSeries(i);
    return svg_ + "</svg>\n";
  }

 private:
  bool CanShow(const PlotPoint& p) const { return x_.CanShow(p.x) && y_.CanShow(p.y); }

  void AppendGrid() {
    for (const Tick& tick : x_.Ticks()) {
      absl::StrAppend(&svg_,
                      absl::StrFormat("<path d=\"M%.1f %dV%d\" class=\"g\"/><text x=\"%.1f\" "
                                      "y=\"%d\" class=\"x\">%s</text>\n",
                                      x_.Px(tick.value), kTop, kHeight - kBottom, x_.Px(tick.value),
                                      kHeight - kBottom + 16, tick.label));
    }
    for (const Tick& tick : y_.Ticks()) {
      absl::StrAppend(&svg_, absl::StrFormat("<path d=\"M%d %.1fH%d\" class=\"g\"/><text x=\"%d\" "
                                             "y=\"%.1f\" class=\"y\">%s</text>\n",
                                             kLeft, y_.Px(tick.value), kWidth - kRight, kLeft - 6,
                                             y_.Px(tick.value) + 4, tick.label));
    }
    absl::StrAppend(&svg_,
                    absl::StrFormat("<text x=\"%d\" y=\"%d\" class=\"x\">%s</text>\n",
                                    (kLeft + kWidth) / 2, kHeight - 4, HtmlEscaped(plot_.x.label)));
  }

  void AppendSeries(size_t index) {
    const PlotSeries& series = plot_.series[index];
    for (const PlotPoint& p : series.dots) AppendDot(p, index);
    std::string path;
    for (const PlotPoint& p : series.points) {
      if (!CanShow(p)) continue;
      absl::StrAppend(&path, path.empty() ? "M" : "L",
                      absl::StrFormat("%.1f %.1f", x_.Px(p.x), y_.Px(p.y)));
      // A line of one point would not be seen.
      if (!p.note.empty() || series.points.size() == 1) AppendDot(p, index);
      if (p.note.empty()) continue;
      absl::StrAppend(&svg_, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" class=\"n\">%s</text>\n",
                                             x_.Px(p.x) + 4, y_.Px(p.y) - 5, HtmlEscaped(p.note)));
    }
    if (!path.empty()) {
      absl::StrAppend(&svg_, "<path d=\"", path, "\" fill=\"none\" stroke-width=\"2\" stroke=\"",
                      Color(index), "\"/>\n");
    }
    if (!series.crossover.has_value() || !x_.IsInside(*series.crossover)) return;
    absl::StrAppend(
        &svg_, absl::StrFormat("<path d=\"M%.1f %dV%d\" stroke=\"%s\" "
                               "stroke-dasharray=\"4 3\"/>\n",
                               x_.Px(*series.crossover), kTop, kHeight - kBottom, Color(index)));
  }

  void AppendDot(const PlotPoint& p, size_t index) {
    if (!CanShow(p)) return;
    absl::StrAppend(&svg_, absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%s\" fill=\"%s\" "
                                           "fill-opacity=\"%s\"/>\n",
                                           x_.Px(p.x), y_.Px(p.y), p.note.empty() ? "2" : "3",
                                           Color(index), p.note.empty() ? "0.35" : "1"));
  }

  const Plot& plot_;
  Scale x_, y_;
  std::string svg_;
};

}  // namespace

std::string PlotSvg(const Plot& plot) { return Picture(plot).Svg(); }

std::string LegendHtml(const std::vector<std::string>& names) {
  std::string html = "<p class=\"l\">";
  for (size_t i = 0; i < names.size(); ++i) {
    absl::StrAppend(&html, "<span style=\"color:", Color(i), "\">&#9632;</span> ",
                    HtmlEscaped(names[i]), " &nbsp; ");
  }
  return html + "</p>\n";
}

std::string HtmlEscaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string HtmlPage(const std::string& title, const std::string& body) {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>", HtmlEscaped(title),
      "</title>\n<style>body{font:14px sans-serif;margin:24px;color:#222}svg{margin-right:12px}"
      "pre{font-size:12px}figure{display:inline-block;margin:0 12px 12px 0;vertical-align:top}"
      "table{border-collapse:collapse;margin:8px 0 20px}td,th{border-bottom:1px solid #ddd;"
      "padding:3px 10px;text-align:left}</style>\n<h1>",
      HtmlEscaped(title), "</h1>\n", body, "</html>\n");
}

}  // namespace lowkey
