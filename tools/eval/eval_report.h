#ifndef LOWKEY_TOOLS_EVAL_EVAL_REPORT_H_
#define LOWKEY_TOOLS_EVAL_EVAL_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tools/eval/eval_table.h"

namespace lowkey {

// A measure is a number that says how good an answer is, and its axis.
struct QualityMeasure {
  const char* cell;  // EvalCell::name
  const char *title, *label;
  bool is_log = false;
};

// Returns the report of client/report/page.h, which holds the rows as `results` besides. A measure
// has a chart against the cache that a text takes, one against the time to read a token and, where
// there are several contexts, one against the context. A chart has a line for each trial. Every
// row must have the measures' cells.
nlohmann::ordered_json EvalReport(const std::string& title,
                                  absl::Span<const QualityMeasure> measures,
                                  const std::vector<EvalRow>& rows);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_EVAL_REPORT_H_
