#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "client/load/report.h"
#include "server/plot.h"

namespace lowkey {
namespace {

// Of a line over prompt lengths: so many medians at most, each of so many requests at least.
constexpr size_t kMaxBins = 8, kMinInBin = 5;
constexpr size_t kMaxDots = 400;  // per mechanism: a page stays small however long the run

std::string Figure(const Plot& plot) {
  std::vector<std::string> names;
  for (const PlotSeries& series : plot.series) names.push_back(series.name);
  return absl::StrCat("<figure>", PlotSvg(plot), LegendHtml(names), "</figure>\n");
}

double LoadOf(const PointResult& point) {
  if (point.rate_per_s.has_value()) return *point.rate_per_s;
  return point.concurrency.value_or(1);
}

PlotAxis LoadAxis(const PointResult& point) {
  if (point.concurrency.has_value()) return {"requests at once", PlotScale::kBinary};
  return {"requests/s asked for", PlotScale::kLogarithmic};
}

// A quantity of every point of a sweep: one line of a plot.
struct Curve {
  const char* name;
  double (*value)(const PointResult& point);
};
constexpr Curve kFirstToken[] = {
    {"p50", [](const PointResult& p) { return p.all.ttft_ms.p50; }},
    {"p95", [](const PointResult& p) { return p.all.ttft_ms.p95; }},
    {"p99", [](const PointResult& p) { return p.all.ttft_ms.p99; }},
};
constexpr Curve kBetweenTokens[] = {
    {"p50", [](const PointResult& p) { return p.all.itl_ms.p50; }},
    {"p95", [](const PointResult& p) { return p.all.itl_ms.p95; }},
    {"p99", [](const PointResult& p) { return p.all.itl_ms.p99; }},
};
constexpr Curve kThroughput[] = {
    {"throughput", [](const PointResult& p) { return p.all.output_tokens_per_s; }},
    {"goodput", [](const PointResult& p) { return p.all.good_tokens_per_s; }},
};

// `curves` against the load.
std::string LoadFigure(const std::string& title, PlotScale scale, absl::Span<const Curve> curves,
                       const std::vector<PointResult>& points) {
  Plot plot;
  plot.title = title;
  plot.x = LoadAxis(points[0]);
  plot.y.scale = scale;
  for (const Curve& curve : curves) {
    PlotSeries& series = plot.series.emplace_back();
    series.name = curve.name;
    for (const PointResult& p : points) series.points.push_back({LoadOf(p), curve.value(p)});
  }
  return Figure(plot);
}

// Latency against throughput: where more load brings nothing but waiting, the line turns upwards.
std::string KneeFigure(const std::vector<PointResult>& points) {
  Plot plot;
  plot.title = "first token, ms, against throughput";
  plot.x.label = "output tokens/s";
  plot.y.scale = PlotScale::kLogarithmic;
  for (const Curve& curve : absl::MakeSpan(kFirstToken).subspan(0, 2)) {
    PlotSeries& series = plot.series.emplace_back();
    series.name = curve.name;
    for (const PointResult& p : points) {
      series.points.push_back({p.all.output_tokens_per_s, curve.value(p)});
    }
  }
  for (size_t i = 0; i < points.size(); ++i) {
    plot.series[0].points[i].note = absl::StrFormat("%g", LoadOf(points[i]));
  }
  return Figure(plot);
}

std::string SweepFigures(const std::vector<PointResult>& points) {
  return absl::StrCat(
      KneeFigure(points),
      LoadFigure("first token, ms", PlotScale::kLogarithmic, kFirstToken, points),
      LoadFigure("between tokens, ms", PlotScale::kLogarithmic, kBetweenTokens, points),
      LoadFigure("output tokens/s", PlotScale::kLinear, kThroughput, points));
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Every request a dot (or a sample of them), and a line through the medians of groups of like
// length.
PlotSeries AgainstPrompt(const std::string& name, std::vector<PlotPoint> dots) {
  PlotSeries series;
  series.name = name;
  std::sort(dots.begin(), dots.end(),
            [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  const size_t n_bins = std::min(kMaxBins, (dots.size() + kMinInBin - 1) / kMinInBin);
  for (size_t bin = 0; bin < n_bins; ++bin) {
    std::vector<double> x, y;
    for (size_t i = bin * dots.size() / n_bins; i < (bin + 1) * dots.size() / n_bins; ++i) {
      x.push_back(dots[i].x);
      y.push_back(dots[i].y);
    }
    series.points.push_back({Median(x), Median(y)});
  }
  const size_t stride = dots.size() / kMaxDots + 1;
  for (size_t i = 0; i < dots.size(); i += stride) series.dots.push_back(dots[i]);
  return series;
}

std::string PromptFigures(const LoadReport& report) {
  Plot first, gap;
  first.title = "first token, ms";
  gap.title = "between tokens, ms (a request's mean)";
  first.x.label = gap.x.label = "prompt tokens";
  first.x.scale = gap.x.scale = PlotScale::kBinary;
  first.y.scale = gap.y.scale = PlotScale::kLogarithmic;
  for (size_t i = 0; i < report.points[0].mechanisms.size(); ++i) {
    std::vector<PlotPoint> ttfts, gaps;
    for (const PromptTimes& times : report.prompt_times) {
      if (times.mix_index != i) continue;
      const double n = times.n_prompt_tokens;
      ttfts.push_back({n, times.ttft_ms});
      if (times.itl_ms.has_value()) gaps.push_back({n, *times.itl_ms});
    }
    const std::string& name = report.points[0].mechanisms[i].label;
    first.series.push_back(AgainstPrompt(name, std::move(ttfts)));
    gap.series.push_back(AgainstPrompt(name, std::move(gaps)));
  }
  return absl::StrCat("<h2>Time against prompt length, at ",
                      HtmlEscaped(PointLabel(report.points[0])), "</h2>\n", Figure(first),
                      Figure(gap));
}

std::string SettingsTable(const LoadReport& report) {
  std::string html = "<table>\n";
  for (const auto& [name, value] : report.settings) {
    absl::StrAppend(&html, "<tr><td>", HtmlEscaped(name), "</td><td>", HtmlEscaped(value),
                    "</td></tr>\n");
  }
  return html + "</table>\n";
}

std::string NotesHtml(const LoadReport& report) {
  std::string html;
  for (const PointResult& point : report.points) {
    for (const std::string& note : Notes(point, report.machine)) {
      absl::StrAppend(&html, "<li>", HtmlEscaped(PointLabel(point)), ": ", HtmlEscaped(note),
                      "</li>\n");
    }
  }
  return html.empty() ? html : absl::StrCat("<ul>\n", html, "</ul>\n");
}

}  // namespace

std::string ReportHtml(const LoadReport& report) {
  std::string figures = SweepText(report.points);
  for (const PointResult& point : report.points) {
    absl::StrAppend(&figures, "\n", PointText(point, report));
  }
  return HtmlPage("lowkey bench",
                  absl::StrCat(SettingsTable(report), NotesHtml(report), "<h2>The sweep</h2>\n",
                               SweepFigures(report.points), PromptFigures(report),
                               "<h2>Figures</h2>\n<pre>", HtmlEscaped(figures), "</pre>\n"));
}

}  // namespace lowkey
