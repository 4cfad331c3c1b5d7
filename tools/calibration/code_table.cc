#include "tools/calibration/code_table.h"

#include "absl/strings/str_format.h"
#include "engine/runtime/calibration/code_curve.h"
#include "server/config/terminal/layout.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {

void PrintCodeCurve(const PrefixCodes& codes) {
  Table table({"prefixes", "B/token", "share of bf16", "distortion"}, 0, StyleOf(stdout).columns);
  std::vector<std::vector<std::string>> rows;
  for (const CodeCurvePoint& point : CodeCurve(codes)) {
    rows.push_back({absl::StrFormat("calibrated:%g", point.bits),
                    CountText(static_cast<int64_t>(point.bytes_per_token + 0.5)),
                    absl::StrFormat("%.3f", point.share),
                    absl::StrFormat("%.5f", point.distortion)});
  }
  for (const auto& row : rows) table.Widen(row);
  PrintHeader(table);
  for (const auto& row : rows) PrintNow(table.Row(row));
}

nlohmann::ordered_json CodeCurveJson(const PrefixCodes& codes) {
  auto json = nlohmann::ordered_json::array();
  for (const CodeCurvePoint& point : CodeCurve(codes)) {
    json.push_back({{"bits", point.bits},
                    {"bytes_per_token", point.bytes_per_token},
                    {"share_of_bf16", point.share},
                    {"distortion", point.distortion}});
  }
  return json;
}

}  // namespace lowkey
