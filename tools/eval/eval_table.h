#ifndef LOWKEY_TOOLS_EVAL_EVAL_TABLE_H_
#define LOWKEY_TOOLS_EVAL_EVAL_TABLE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/config/terminal/layout.h"
#include "tools/eval/scored_text.h"
#include "tools/eval/trials.h"

namespace lowkey {

// A measured value: `name` and `value` in JSON and CSV, `title` and `text` in the table, which
// leaves out cells without a title.
struct EvalCell {
  std::string name;
  nlohmann::ordered_json value;
  std::string title = {}, text = {};
};

EvalCell CountCell(std::string name, int64_t value, std::string title = {});
// `text` shows the value with so many decimals.
EvalCell NumberCell(std::string name, double value, std::string title, int n_decimals);

struct EvalRow {
  Trial trial;
  int64_t context_tokens = 0;
  std::vector<EvalCell> cells;
  EvalCost cost;
  // These are set where perplexity is measured; `ratio` is to the first row of the same context.
  std::optional<double> perplexity = {};
  double ratio = 1;
};

// The cells of all rows: the trial's name, the row's own cells, its cost.
std::vector<EvalCell> AllCells(const EvalRow& row);
// Returns those of them that have a title.
std::vector<EvalCell> ShownCells(const EvalRow& row);

// Returns a table whose columns are those of `widest`, as wide as its texts.
Table MakeEvalTable(const std::vector<Trial>& trials, const EvalRow& widest);
std::string TableRow(const Table& table, const EvalRow& row);

nlohmann::ordered_json RowJson(const EvalRow& row);
// UNAVAILABLE when the file cannot be written whole.
absl::Status WriteCsv(const std::string& path, const std::vector<EvalRow>& rows);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_EVAL_TABLE_H_
