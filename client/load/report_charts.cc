#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "client/load/report.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;
using Points = std::vector<std::pair<double, double>>;

// A line over prompt lengths has at most so many medians, each of at least so many requests.
constexpr size_t kMaxBins = 8, kMinInBin = 5;
constexpr size_t kMaxDots = 400;  // per mechanism: a report stays small however long the run

Json Axis(const char* label, const char* unit, const char* scale) {
  return {{"label", label}, {"unit", unit}, {"scale", scale}};
}

Json TokensAxis() {
  Json axis = Axis("prompt", "tokens", "log");
  axis["base"] = 2;
  return axis;
}

Json Chart(const std::string& title, Json x, Json y) {
  return {{"title", title}, {"x", std::move(x)}, {"y", std::move(y)}, {"series", Json::array()}};
}

double LoadOf(const PointResult& point) {
  if (point.rate_per_s.has_value()) return *point.rate_per_s;
  return point.concurrency.value_or(1);
}

Json LoadAxis(const PointResult& point) {
  if (!point.concurrency.has_value()) return Axis("load", "requests/s", "log");
  Json axis = Axis("load", "requests at once", "log");
  axis["base"] = 2;
  return axis;
}

// A quantity of every point of a sweep: one line of a chart.
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

void AddCurves(absl::Span<const Curve> curves, const std::vector<PointResult>& points,
               double (*x_of)(const PointResult&), Json& chart) {
  for (const Curve& curve : curves) {
    Points line;
    for (const PointResult& p : points) line.emplace_back(x_of(p), curve.value(p));
    chart["series"].push_back({{"name", curve.name}, {"points", line}});
  }
}

// Latency against throughput: where more load brings nothing but waiting, the line turns upwards.
Json KneeChart(const std::vector<PointResult>& points) {
  Json chart = Chart("First token against throughput", Axis("output", "tokens/s", "linear"),
                     Axis("first token", "ms", "log"));
  AddCurves(
      absl::MakeSpan(kFirstToken).subspan(0, 2), points,
      [](const PointResult& p) { return p.all.output_tokens_per_s; }, chart);
  Json labels = Json::array();
  for (const PointResult& point : points) labels.push_back(absl::StrFormat("%g", LoadOf(point)));
  chart["series"][0]["labels"] = labels;
  chart["note"] =
      absl::StrCat("Beside the points: load, ", LoadAxis(points[0])["unit"].get<std::string>());
  return chart;
}

void AddSweepCharts(const std::vector<PointResult>& points, Json& charts) {
  charts.push_back(KneeChart(points));
  const auto add = [&](const char* title, Json y, absl::Span<const Curve> curves) {
    Json& chart = charts.emplace_back(Chart(title, LoadAxis(points[0]), std::move(y)));
    AddCurves(curves, points, LoadOf, chart);
  };
  add("First token by load", Axis("first token", "ms", "log"), kFirstToken);
  add("Between tokens by load", Axis("between tokens", "ms", "log"), kBetweenTokens);
  add("Throughput by load", Axis("output", "tokens/s", "linear"), kThroughput);
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Every request a dot (or a sample of them), and a line through the medians of groups of like
// length.
Json AgainstPrompt(const std::string& name, Points requests) {
  std::sort(requests.begin(), requests.end());
  const size_t n_bins = std::min(kMaxBins, (requests.size() + kMinInBin - 1) / kMinInBin);
  Points medians, dots;
  for (size_t bin = 0; bin < n_bins; ++bin) {
    std::vector<double> x, y;
    for (size_t i = bin * requests.size() / n_bins; i < (bin + 1) * requests.size() / n_bins; ++i) {
      x.push_back(requests[i].first);
      y.push_back(requests[i].second);
    }
    medians.emplace_back(Median(x), Median(y));
  }
  const size_t stride = requests.size() / kMaxDots + 1;
  for (size_t i = 0; i < requests.size(); i += stride) dots.push_back(requests[i]);
  return {{"name", name}, {"points", medians}, {"dots", dots}};
}

void AddPromptCharts(const LoadReport& report, Json& charts) {
  Json first = Chart("First token by prompt", TokensAxis(), Axis("first token", "ms", "log"));
  Json gap = Chart("Between tokens by prompt", TokensAxis(), Axis("a request's mean", "ms", "log"));
  for (size_t i = 0; i < report.points[0].mechanisms.size(); ++i) {
    Points ttfts, gaps;
    for (const PromptTimes& times : report.prompt_times) {
      if (times.mix_index != i) continue;
      ttfts.emplace_back(times.n_prompt_tokens, times.ttft_ms);
      if (times.itl_ms.has_value()) gaps.emplace_back(times.n_prompt_tokens, *times.itl_ms);
    }
    const std::string& name = report.points[0].mechanisms[i].label;
    first["series"].push_back(AgainstPrompt(name, std::move(ttfts)));
    gap["series"].push_back(AgainstPrompt(name, std::move(gaps)));
  }
  for (Json* chart : {&first, &gap}) {
    (*chart)["note"] = absl::StrCat("At ", PointLabel(report.points[0]),
                                    "; dots are requests, lines join medians");
    charts.push_back(std::move(*chart));
  }
}

}  // namespace

Json LoadCharts(const LoadReport& report) {
  Json charts = Json::array();
  if (report.points.size() > 1) AddSweepCharts(report.points, charts);
  AddPromptCharts(report, charts);
  return charts;
}

}  // namespace lowkey
