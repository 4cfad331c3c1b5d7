#ifndef LOWKEY_TOOLS_CROSSOVER_REPORT_H_
#define LOWKEY_TOOLS_CROSSOVER_REPORT_H_

#include <string>

#include "engine/runtime/calibrate.h"

namespace lowkey {

// Tables of time and memory against length, and of crossovers with standard.
std::string CalibrationText(const Calibration& calibration);

// One self-contained page: plots of prefill time, decode time and memory against length, crossovers
// with standard marked, and the tables.
std::string CalibrationHtml(const Calibration& calibration, const std::string& title);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CROSSOVER_REPORT_H_
