#include "tools/eval/eval_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/report/page.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

// A price is something that quality costs, and its axis.
struct Price {
  const char *title, *label, *unit;
  int base;  // the axis's ticks are its powers
  double (*value)(const EvalRow&);
};
constexpr Price kCache = {"cache", "cache of a text", "MiB", 10, [](const EvalRow& row) {
                            return static_cast<double>(row.cost.cache_bytes) / (1 << 20);
                          }};
constexpr Price kRead = {"reading", "cache read by a token", "MiB", 10, [](const EvalRow& row) {
                           return static_cast<double>(row.cost.read_bytes) / (1 << 20);
                         }};
constexpr Price kTime = {"time", "reading a token", "ms", 10, [](const EvalRow& row) {
                           return 1e3 * row.cost.seconds / static_cast<double>(row.cost.n_tokens);
                         }};
constexpr Price kContext = {"context", "context", "tokens", 2, [](const EvalRow& row) {
                              return static_cast<double>(row.context_tokens);
                            }};

double ValueOf(const EvalRow& row, const char* cell) {
  const std::vector<EvalCell> cells = AllCells(row);
  return std::find_if(cells.begin(), cells.end(), [&](const EvalCell& c) { return c.name == cell; })
      ->value.get<double>();
}

bool HasSeveralContexts(const std::vector<EvalRow>& rows) {
  return std::any_of(rows.begin(), rows.end(), [&](const EvalRow& row) {
    return row.context_tokens != rows[0].context_tokens;
  });
}

Json MeasureChart(const QualityMeasure& measure, const Price& price,
                  const std::vector<EvalRow>& rows, bool has_labels) {
  Json chart = {
      {"title", absl::StrCat(measure.title, " by ", price.title)},
      {"x", {{"label", price.label}, {"unit", price.unit}, {"scale", "log"}, {"base", price.base}}},
      {"y", {{"label", measure.label}, {"scale", measure.is_log ? "log" : "linear"}}},
      {"series", Json::array()}};
  if (has_labels) chart["note"] = "Numbers beside points: tokens in a window";
  for (const EvalRow& row : rows) {
    Json& all = chart["series"];
    auto series = std::find_if(all.begin(), all.end(),
                               [&](const Json& s) { return s["name"] == row.trial.name; });
    if (series == all.end()) {
      all.push_back({{"name", row.trial.name}, {"points", Json::array()}});
      series = all.end() - 1;
    }
    (*series)["points"].push_back({price.value(row), ValueOf(row, measure.cell)});
    if (has_labels) (*series)["labels"].push_back(absl::StrCat(row.context_tokens));
  }
  return chart;
}

ReportTable ResultTable(const std::vector<EvalRow>& rows) {
  ReportTable table{"Results"};
  for (const EvalRow& row : rows) {
    table.columns.clear();
    std::vector<std::string>& texts = table.rows.emplace_back();
    for (const EvalCell& cell : ShownCells(row)) {
      table.columns.push_back(cell.title);
      texts.push_back(cell.text);
    }
  }
  return table;
}

}  // namespace

Json EvalReport(const std::string& title, absl::Span<const QualityMeasure> measures,
                const std::vector<EvalRow>& rows) {
  Json report = BeginReport(title);
  const bool has_contexts = HasSeveralContexts(rows);
  for (const QualityMeasure& measure : measures) {
    for (const Price& price : {kCache, kRead, kTime}) {
      // On a logarithmic axis nothing has no place: choices have no windows.
      const bool is_known = std::all_of(rows.begin(), rows.end(),
                                        [&](const EvalRow& row) { return price.value(row) > 0; });
      if (is_known) report["charts"].push_back(MeasureChart(measure, price, rows, has_contexts));
    }
    if (has_contexts) report["charts"].push_back(MeasureChart(measure, kContext, rows, false));
  }
  report["tables"].push_back(ResultTable(rows));
  for (const EvalRow& row : rows) report["results"].push_back(RowJson(row));
  return report;
}

}  // namespace lowkey
