#include "tools/crossover_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/report/page.h"
#include "server/config/profile.h"
#include "server/request/request.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

// What a chart and a column of the tables show.
struct Quantity {
  const char *title, *name, *unit;
  double (*value)(const RatePoint&);
};
constexpr Quantity kQuantities[] = {
    {"Prefill of a prompt", "prefill", "s", [](const RatePoint& p) { return p.prefill_seconds; }},
    {"Decoding a token", "decode", "ms/token",
     [](const RatePoint& p) { return 1e3 * p.decode_seconds; }},
    {"Cache of a sequence", "cache", "MiB",
     [](const RatePoint& p) { return static_cast<double>(p.cache_bytes) / (1 << 20); }},
};

const MechanismRates* StandardOf(const MeasuredRates& c) {
  for (const MechanismRates& m : c.mechanisms) {
    if (m.options.mechanism == Mechanism::kStandard) return &m;
  }
  return nullptr;
}

CostCurve CurveOf(const MechanismRates& m, const Quantity& quantity) {
  CostCurve curve;
  for (const RatePoint& p : m.points) {
    curve.emplace_back(static_cast<double>(p.n_tokens), quantity.value(p));
  }
  return curve;
}

ReportTable CostTable(const MechanismRates& m) {
  ReportTable table{AttentionLabel(m.options), {"tokens"}};
  for (const Quantity& quantity : kQuantities) {
    table.columns.push_back(absl::StrCat(quantity.name, " ", quantity.unit));
  }
  table.columns.push_back("decode Gmac/s");
  for (const RatePoint& p : m.points) {
    auto& row = table.rows.emplace_back();
    row.push_back(absl::StrCat(p.n_tokens));
    for (const Quantity& quantity : kQuantities) row.push_back(NumberText(quantity.value(p)));
    row.push_back(NumberText(p.decode_work / p.decode_seconds / 1e9));
  }
  return table;
}

// Without rows when there is nothing to compare with standard.
ReportTable CrossoverTable(const MeasuredRates& rates) {
  ReportTable table{"Lengths from which a mechanism costs less than standard (-: from none)", {""}};
  for (const Quantity& quantity : kQuantities) table.columns.push_back(quantity.name);
  const MechanismRates* standard = StandardOf(rates);
  for (const MechanismRates& m : rates.mechanisms) {
    if (standard == nullptr || &m == standard) continue;
    auto& row = table.rows.emplace_back();
    row.push_back(AttentionLabel(m.options));
    for (const Quantity& quantity : kQuantities) {
      const auto tokens = MeasuredCrossover(CurveOf(*standard, quantity), CurveOf(m, quantity));
      row.push_back(tokens.has_value() ? absl::StrFormat("%.0f", *tokens) : "-");
    }
  }
  return table;
}

std::vector<ReportTable> Tables(const MeasuredRates& rates) {
  std::vector<ReportTable> tables;
  for (const MechanismRates& m : rates.mechanisms) tables.push_back(CostTable(m));
  ReportTable crossovers = CrossoverTable(rates);
  if (!crossovers.rows.empty()) tables.push_back(std::move(crossovers));
  return tables;
}

// One quantity against length, with every mechanism's line.
Json QuantityChart(const MeasuredRates& rates, const Quantity& quantity) {
  Json chart = {{"title", quantity.title},
                {"note", "Dashed verticals: from there on a mechanism costs less than standard"},
                {"x", {{"label", "length"}, {"unit", "tokens"}, {"scale", "log"}, {"base", 2}}},
                {"y", {{"label", quantity.name}, {"unit", quantity.unit}, {"scale", "log"}}},
                {"series", Json::array()}};
  const MechanismRates* standard = StandardOf(rates);
  for (const MechanismRates& m : rates.mechanisms) {
    const CostCurve curve = CurveOf(m, quantity);
    Json series = {{"name", AttentionLabel(m.options)}, {"points", curve}};
    if (standard != nullptr && standard != &m) {
      const auto tokens = MeasuredCrossover(CurveOf(*standard, quantity), curve);
      if (tokens.has_value() && *tokens > curve[0].first) series["crossover"] = *tokens;
    }
    chart["series"].push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::optional<double> MeasuredCrossover(const CostCurve& from, const CostCurve& to) {
  std::optional<double> crossover;
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const double tokens = from[i].first, gap = to[i].second - from[i].second;
    if (gap >= 0) {
      crossover.reset();  // any saving at shorter lengths has ended
    } else if (!crossover.has_value()) {
      crossover = tokens;
      const double gap_before = i == 0 ? 0 : to[i - 1].second - from[i - 1].second;
      if (gap_before > 0) {
        const double before = from[i - 1].first;
        crossover = before + (tokens - before) * gap_before / (gap_before - gap);
      }
    }
  }
  return crossover;
}

std::string RatesText(const MeasuredRates& rates) {
  std::string text;
  for (const ReportTable& table : Tables(rates)) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", table.title, "\n", TableText(table, "  "));
  }
  return text;
}

Json RatesReport(const MeasuredRates& rates, const std::string& title, const std::string& place) {
  Json report = BeginReport(title);
  report["machine"] = absl::StrCat(report["machine"].get<std::string>(), ", ", place);
  for (const Quantity& quantity : kQuantities) {
    report["charts"].push_back(QuantityChart(rates, quantity));
  }
  report["tables"] = Tables(rates);
  report.update(Json::parse(ProfileJson(rates.profile)));
  return report;
}

}  // namespace lowkey
