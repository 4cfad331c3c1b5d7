#ifndef LOWKEY_TOOLS_CROSSOVER_REPORT_H_
#define LOWKEY_TOOLS_CROSSOVER_REPORT_H_

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/measure_rates.h"

namespace lowkey {

// Measured lengths in tokens, ascending, and what each costs.
using CostCurve = std::vector<std::pair<double, double>>;

// Returns the length from which `to` costs less than `from` at every longer measured length that
// both have, by straight lines between measured lengths; nullopt when it costs as much at the last.
std::optional<double> MeasuredCrossover(const CostCurve& from, const CostCurve& to);

// Returns tables of time and memory by length, and of crossovers with standard.
std::string RatesText(const MeasuredRates& rates);

// Returns the report of client/report/page.h with the fields of ProfileJson besides: charts and
// tables of prefill time, decode time and memory by length, and the crossovers with standard.
// `title` names the model, `place` the instruction set or the device that computed.
nlohmann::ordered_json RatesReport(const MeasuredRates& rates, const std::string& title,
                                   const std::string& place);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CROSSOVER_REPORT_H_
