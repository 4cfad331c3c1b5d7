#ifndef LOWKEY_CLIENT_LOAD_REPORT_H_
#define LOWKEY_CLIENT_LOAD_REPORT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/load/statistics.h"

namespace lowkey {

// One request's times, for charts over prompt length.
struct PromptTimes {
  size_t mix_index = 0;
  int32_t n_prompt_tokens = 0;
  double ttft_ms = 0;
  std::optional<double> itl_ms = {};  // mean; absent with one token
};

// The findings of one run of `lowkey bench`.
struct LoadReport {
  std::string model;
  std::vector<std::pair<std::string, std::string>> settings;  // names and values as given
  Slo slo;
  GeneratorMachine machine;
  std::vector<PointResult> points;        // 1 or more, all with the same mechanisms
  std::vector<PromptTimes> prompt_times;  // the first point's, without warm-up
};

// Returns the times of the counted requests that ended well.
std::vector<PromptTimes> TimesByPrompt(const PointRun& run);

// Returns "rate 4/s", "concurrency 8" or "trace".
std::string PointLabel(const PointResult& point);

// Return texts for a terminal: the figures of a point of `report`, and one line for each point.
std::string PointText(const PointResult& point, const LoadReport& report);
std::string SweepText(const std::vector<PointResult>& points);

// Returns the report of client/report/page.h with every figure of the run besides. Names carry
// units; summaries have count, mean, p50, p90, p95, p99, max.
nlohmann::ordered_json ReportDocument(const LoadReport& report);

// Returns its charts: of a sweep latency against throughput (the knee), latencies and throughput
// against the load; of its first point times against prompt length by mechanism.
nlohmann::ordered_json LoadCharts(const LoadReport& report);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_REPORT_H_
