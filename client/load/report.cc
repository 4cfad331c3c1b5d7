#include "client/load/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

double MiB(double bytes) { return bytes / (1 << 20); }

std::string SloText(const Slo& slo) {
  std::vector<std::string> bounds;
  if (slo.ttft_ms.has_value()) bounds.push_back(absl::StrCat("first token ", *slo.ttft_ms, " ms"));
  if (slo.itl_ms.has_value()) bounds.push_back(absl::StrCat("between tokens ", *slo.itl_ms, " ms"));
  return absl::StrJoin(bounds, ", ");
}

std::string SummaryRow(const char* name, const Summary& s) {
  if (s.n == 0) return absl::StrFormat("  %-18s %9s\n", name, "-");
  return absl::StrFormat("  %-18s %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f\n", name, s.mean, s.p50,
                         s.p90, s.p95, s.p99, s.max);
}

std::string RatesRow(const char* name, double requests, double output, const std::string& more) {
  return absl::StrFormat("  %-18s %.2f requests/s, %.1f output tokens/s%s\n", name, requests,
                         output, more);
}

std::string GoodputRow(const GroupResult& all, const Slo& slo) {
  if (!slo.ttft_ms.has_value() && !slo.itl_ms.has_value()) return "";
  const double percent = all.n_requests == 0 ? 0
                                             : 100.0 * static_cast<double>(all.n_good) /
                                                   static_cast<double>(all.n_requests);
  return RatesRow("goodput", all.good_requests_per_s, all.good_tokens_per_s,
                  absl::StrFormat(" (%.0f%% within %s)", percent, SloText(slo)));
}

std::string ErrorsRow(const GroupResult& all) {
  if (all.errors.empty()) return "";
  return absl::StrFormat("  %-18s %s\n", "errors",
                         absl::StrJoin(all.errors, ", ", absl::PairFormatter(" ")));
}

std::string MechanismRows(const PointResult& point) {
  if (point.mechanisms.size() < 2) return "";
  size_t width = 9;
  for (const GroupResult& m : point.mechanisms) width = std::max(width, m.label.size());
  const int columns = static_cast<int>(width);
  std::string text = absl::StrFormat("  %-*s %8s %11s %11s %11s %11s %11s %11s %11s\n", columns,
                                     "mechanism", "requests", "first p50", "first p95", "token p50",
                                     "token p95", "all p50", "tokens/s", "cache MiB");
  for (const GroupResult& m : point.mechanisms) {
    absl::StrAppend(
        &text,
        absl::StrFormat("  %-*s %8d %11.1f %11.1f %11.2f %11.2f %11.1f %11.1f %11.2f\n", columns,
                        m.label, m.n_ok, m.ttft_ms.p50, m.ttft_ms.p95, m.itl_ms.p50, m.itl_ms.p95,
                        m.e2e_ms.p50, m.output_tokens_per_s, MiB(m.mean_cache_bytes)));
  }
  return text;
}

std::string ServerRow(const std::optional<ServerPeak>& server) {
  if (!server.has_value()) return absl::StrFormat("  %-18s -\n", "server peak");
  return absl::StrFormat("  %-18s cache %.1f of %.1f MiB, %d running, %d waiting\n", "server peak",
                         MiB(static_cast<double>(server->cache_bytes_used)),
                         MiB(static_cast<double>(server->cache_bytes_total)), server->n_running,
                         server->n_waiting);
}

std::string GeneratorRow(const PointResult& point, const GeneratorMachine& machine) {
  std::string late;
  if (point.lag_ms.n > 0) {
    late = absl::StrFormat(", requests late by %.2f ms (p99), %.1f at most", point.lag_ms.p99,
                           point.lag_ms.max);
  }
  return absl::StrFormat("  %-18s %.2f of %d cores, wakes late by %.2f ms (p99)%s\n", "generator",
                         point.cpu_cores, machine.n_cores, point.wake_ms.p99, late);
}

Json SummaryJson(const Summary& s) {
  Json json = {{"count", s.n}};
  if (s.n == 0) return json;
  json.update({{"mean", s.mean},
               {"p50", s.p50},
               {"p90", s.p90},
               {"p95", s.p95},
               {"p99", s.p99},
               {"max", s.max}});
  return json;
}

Json GroupJson(const GroupResult& g) {
  Json json = {{"requests", g.n_requests},
               {"ok", g.n_ok},
               {"good", g.n_good},
               {"prompt_tokens", g.n_prompt_tokens},
               {"output_tokens", g.n_output_tokens},
               {"requests_per_s", g.requests_per_s},
               {"output_tokens_per_s", g.output_tokens_per_s},
               {"total_tokens_per_s", g.total_tokens_per_s},
               {"good_requests_per_s", g.good_requests_per_s},
               {"good_tokens_per_s", g.good_tokens_per_s},
               {"ttft_ms", SummaryJson(g.ttft_ms)},
               {"itl_ms", SummaryJson(g.itl_ms)},
               {"e2e_ms", SummaryJson(g.e2e_ms)},
               {"outside_engine_ms", SummaryJson(g.outside_ms)},
               {"refusal_ms", SummaryJson(g.refusal_ms)},
               {"errors", Json::object()},
               {"mean_cache_bytes", g.mean_cache_bytes}};
  for (const auto& [code, n] : g.errors) json["errors"][code] = n;
  return json;
}

Json PointJson(const PointResult& point, const GeneratorMachine& machine) {
  Json json = {{"load", PointLabel(point)}};
  if (point.rate_per_s.has_value()) json["rate_per_s"] = *point.rate_per_s;
  if (point.concurrency.has_value()) json["concurrency"] = *point.concurrency;
  json["seconds"] = point.seconds;
  json["warmup_requests"] = point.n_warmup;
  json["cut_requests"] = point.n_cut;
  json.update(GroupJson(point.all));
  json["mechanisms"] = Json::array();
  for (const GroupResult& mechanism : point.mechanisms) {
    Json row = {{"attention", mechanism.label}};
    row.update(GroupJson(mechanism));
    json["mechanisms"].push_back(row);
  }
  if (point.server.has_value()) {
    json["server_peak"] = {{"cache_bytes_used", point.server->cache_bytes_used},
                           {"cache_bytes_total", point.server->cache_bytes_total},
                           {"running_requests", point.server->n_running},
                           {"waiting_requests", point.server->n_waiting}};
  }
  json["generator"] = {{"cpu_cores", point.cpu_cores},
                       {"late_ms", SummaryJson(point.lag_ms)},
                       {"wake_late_ms", SummaryJson(point.wake_ms)}};
  json["notes"] = Notes(point, machine);
  return json;
}

}  // namespace

std::vector<PromptTimes> TimesByPrompt(const PointRun& run) {
  std::vector<PromptTimes> times;
  for (const RequestRecord& record : run.records) {
    const StreamRecord& stream = record.stream;
    if (record.is_warmup || !stream.status.ok() || !stream.first_token_s.has_value()) continue;
    times.push_back({record.mix_index, record.n_prompt_tokens,
                     1e3 * (*stream.first_token_s - record.due_s), MeanGapMs(stream)});
  }
  return times;
}

std::string PointLabel(const PointResult& point) {
  if (point.rate_per_s.has_value()) return absl::StrFormat("rate %g/s", *point.rate_per_s);
  if (point.concurrency.has_value()) return absl::StrCat("concurrency ", *point.concurrency);
  return "trace";
}

std::string PointText(const PointResult& point, const LoadReport& report) {
  const GroupResult& all = point.all;
  std::string text =
      absl::StrFormat("%s: %d requests in %.1f s, after %d for warm-up\n", PointLabel(point),
                      all.n_requests, point.seconds, point.n_warmup);
  absl::StrAppend(&text,
                  RatesRow("throughput", all.requests_per_s, all.output_tokens_per_s,
                           absl::StrFormat(", %.1f with prompts", all.total_tokens_per_s)),
                  GoodputRow(all, report.slo), ErrorsRow(all),
                  absl::StrFormat("  %-18s %9s %9s %9s %9s %9s %9s\n", "ms", "mean", "p50", "p90",
                                  "p95", "p99", "max"),
                  SummaryRow("first token", all.ttft_ms), SummaryRow("between tokens", all.itl_ms),
                  SummaryRow("end to end", all.e2e_ms),
                  SummaryRow("outside the engine", all.outside_ms));
  if (all.refusal_ms.n > 0) absl::StrAppend(&text, SummaryRow("refusal", all.refusal_ms));
  absl::StrAppend(&text, MechanismRows(point), ServerRow(point.server),
                  GeneratorRow(point, report.machine));
  for (const std::string& note : Notes(point, report.machine)) {
    absl::StrAppend(&text, "  note: ", note, "\n");
  }
  return text;
}

std::string SweepText(const std::vector<PointResult>& points) {
  std::string text =
      absl::StrFormat("%-18s %10s %10s %10s %10s %10s %10s %10s\n", "load", "requests/s",
                      "output t/s", "good t/s", "first p50", "first p95", "token p95", "errors");
  for (const PointResult& point : points) {
    const GroupResult& all = point.all;
    absl::StrAppend(&text,
                    absl::StrFormat("%-18s %10.2f %10.1f %10.1f %10.1f %10.1f %10.2f %10d\n",
                                    PointLabel(point), all.requests_per_s, all.output_tokens_per_s,
                                    all.good_tokens_per_s, all.ttft_ms.p50, all.ttft_ms.p95,
                                    all.itl_ms.p95, all.n_requests - all.n_ok));
  }
  return text;
}

std::string ReportJson(const LoadReport& report) {
  Json json = {{"settings", Json::object()}};
  for (const auto& [name, value] : report.settings) json["settings"][name] = value;
  json["slo"] = Json::object();
  if (report.slo.ttft_ms.has_value()) json["slo"]["ttft_ms"] = *report.slo.ttft_ms;
  if (report.slo.itl_ms.has_value()) json["slo"]["itl_ms"] = *report.slo.itl_ms;
  json["points"] = Json::array();
  for (const PointResult& point : report.points) {
    json["points"].push_back(PointJson(point, report.machine));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lowkey
