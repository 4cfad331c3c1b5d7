#ifndef LOWKEY_TOOLS_EVAL_EVAL_REPORT_H_
#define LOWKEY_TOOLS_EVAL_EVAL_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tools/eval/eval_table.h"

namespace lowkey {

// A number that says how good an answer is, and its axis.
struct QualityMeasure {
  const char* cell;  // EvalCell::name
  const char *title, *label;
  bool is_log = false;
};

// Returns the report of client/report/page.h with the rows as `results` besides: for each measure a
// chart against the cache that a text takes and one against the time to read a token, and one against
// the context where there are several; a line for each trial. Every row has the measures' cells.
nlohmann::ordered_json EvalReport(const std::string& title,
                                  absl::Span<const QualityMeasure> measures,
                                  const std::vector<EvalRow>& rows);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_EVAL_REPORT_H_
