#ifndef LOWKEY_CLIENT_LOAD_REPORT_H_
#define LOWKEY_CLIENT_LOAD_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/load/statistics.h"

namespace lowkey {

// One request's times, for plots over prompt length.
struct PromptTimes {
  size_t mix_index = 0;
  int32_t n_prompt_tokens = 0;
  double ttft_ms = 0;
  std::optional<double> itl_ms = {};  // mean; absent with one token
};

// Everything that a run of `lowkey bench` found.
struct LoadReport {
  std::vector<std::pair<std::string, std::string>> settings;  // name and value, as they were set
  Slo slo;
  GeneratorMachine machine;
  std::vector<PointResult> points;        // 1 or more; every one with the same mechanisms
  std::vector<PromptTimes> prompt_times;  // of the first point, warm-up left out
};

// Of requests that ended well and count.
std::vector<PromptTimes> TimesByPrompt(const PointRun& run);

// "rate 4/s", "concurrency 8", "trace".
std::string PointLabel(const PointResult& point);

// For a terminal: the figures of a point of `report`, and a line for each of several.
std::string PointText(const PointResult& point, const LoadReport& report);
std::string SweepText(const std::vector<PointResult>& points);

// One line of JSON. Names carry units; summaries have count, mean, p50, p90, p95, p99, max.
std::string ReportJson(const LoadReport& report);

// One self-contained page: tables, notes, and plots of latency against throughput (the knee),
// latencies and throughput against the load, and times against prompt length by mechanism.
std::string ReportHtml(const LoadReport& report);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_REPORT_H_
