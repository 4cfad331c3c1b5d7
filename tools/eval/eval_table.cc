#include "tools/eval/eval_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

EvalCell ShareCell(const EvalCost& cost) {
  EvalCell cell{"standard_cache_bytes", cost.standard_bytes, "share", "-"};
  if (cost.standard_bytes > 0) {
    cell.text = absl::StrFormat(
        "%.3f", static_cast<double>(cost.cache_bytes) / static_cast<double>(cost.standard_bytes));
  }
  return cell;
}

std::vector<std::string> ShownTexts(const EvalRow& row) {
  std::vector<std::string> texts;
  for (EvalCell& cell : ShownCells(row)) texts.push_back(std::move(cell.text));
  return texts;
}

}  // namespace

EvalCell CountCell(std::string name, int64_t value, std::string title) {
  return {std::move(name), value, std::move(title), CountText(value)};
}

EvalCell NumberCell(std::string name, double value, std::string title, int n_decimals) {
  return {std::move(name), value, std::move(title), absl::StrFormat("%.*f", n_decimals, value)};
}

std::vector<EvalCell> AllCells(const EvalRow& row) {
  std::vector<EvalCell> cells = {{"attention", row.trial.name, "attention", row.trial.name}};
  cells.insert(cells.end(), row.cells.begin(), row.cells.end());
  const EvalCost& cost = row.cost;
  const double rate = static_cast<double>(cost.n_tokens) / cost.seconds;
  cells.push_back({"cache_bytes", cost.cache_bytes, "cache", BytesText(cost.cache_bytes)});
  cells.push_back(ShareCell(cost));
  cells.push_back(CountCell("read_bytes", cost.read_bytes));
  cells.push_back(
      {"seconds", cost.seconds, "tokens/s", CountText(static_cast<int64_t>(rate + 0.5))});
  cells.push_back(CountCell("rank", cost.rank));
  return cells;
}

std::vector<EvalCell> ShownCells(const EvalRow& row) {
  std::vector<EvalCell> cells = AllCells(row);
  std::erase_if(cells, [](const EvalCell& cell) { return cell.title.empty(); });
  return cells;
}

Table MakeEvalTable(const std::vector<Trial>& trials, const EvalRow& widest) {
  size_t name_width = 0;
  for (const Trial& trial : trials) name_width = std::max(name_width, trial.name.size());
  std::vector<std::string> titles;
  for (EvalCell& cell : ShownCells(widest)) titles.push_back(std::move(cell.title));
  Table table(std::move(titles), name_width, StyleOf(stdout).columns);
  EvalRow nameless = widest;
  nameless.trial.name.clear();
  table.Widen(ShownTexts(nameless));
  return table;
}

std::string TableRow(const Table& table, const EvalRow& row) { return table.Row(ShownTexts(row)); }

Json RowJson(const EvalRow& row) {
  Json json;
  for (const EvalCell& cell : AllCells(row)) json[cell.name] = cell.value;
  return json;
}

absl::Status WriteCsv(const std::string& path, const std::vector<EvalRow>& rows) {
  std::string text;
  for (const EvalRow& row : rows) {
    std::vector<std::string> names, values;
    for (const EvalCell& cell : AllCells(row)) {
      names.push_back(cell.name);
      values.push_back(cell.value.is_string() ? cell.value.get<std::string>() : cell.value.dump());
    }
    if (text.empty()) absl::StrAppend(&text, absl::StrJoin(names, ","), "\n");
    absl::StrAppend(&text, absl::StrJoin(values, ","), "\n");
  }
  return WriteTextFile(path, text);
}

}  // namespace lowkey
