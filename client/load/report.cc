#include "client/load/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/report/page.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

double MiB(double bytes) { return bytes / (1 << 20); }

std::string SloText(const Slo& slo) {
  std::string text;
  if (slo.ttft_ms.has_value()) absl::StrAppend(&text, "first token ", *slo.ttft_ms, " ms");
  if (slo.itl_ms.has_value()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", "between tokens ", *slo.itl_ms, " ms");
  }
  return text;
}

std::string Fixed(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }

// A named figure of a point's text.
std::string Line(const char* name, const std::string& figure) {
  return absl::StrFormat("  %-18s %s\n", name, figure);
}

std::string RatesText(double requests, double output) {
  return absl::StrFormat("%.2f requests/s, %.1f output tokens/s", requests, output);
}

std::string GoodputLine(const GroupResult& all, const Slo& slo) {
  if (!slo.ttft_ms.has_value() && !slo.itl_ms.has_value()) return "";
  const double percent = all.n_requests == 0 ? 0
                                             : 100.0 * static_cast<double>(all.n_good) /
                                                   static_cast<double>(all.n_requests);
  return Line("goodput",
              absl::StrCat(RatesText(all.good_requests_per_s, all.good_tokens_per_s),
                           absl::StrFormat(" (%.0f%% within ", percent), SloText(slo), ")"));
}

ReportTable LatencyTable(const PointResult& point) {
  const GroupResult& all = point.all;
  ReportTable table{"Latency", {"ms", "mean", "p50", "p90", "p95", "p99", "max"}};
  const auto add = [&table](const char* name, const Summary& s) {
    auto& row = table.rows.emplace_back(table.columns.size(), s.n == 0 ? "-" : "");
    row[0] = name;
    if (s.n == 0) return;
    const double values[] = {s.mean, s.p50, s.p90, s.p95, s.p99, s.max};
    for (size_t i = 0; i < std::size(values); ++i) row[i + 1] = Fixed(values[i], 1);
  };
  add("first token", all.ttft_ms);
  add("between tokens", all.itl_ms);
  add("end to end", all.e2e_ms);
  add("outside the engine", all.outside_ms);
  if (all.refusal_ms.n > 0) add("refusal", all.refusal_ms);
  return table;
}

ReportTable MechanismTable(const PointResult& point) {
  ReportTable table{"By mechanism",
                    {"mechanism", "requests", "first p50", "first p95", "token p50", "token p95",
                     "all p50", "tokens/s", "cache MiB"}};
  for (const GroupResult& m : point.mechanisms) {
    table.rows.push_back({m.label, absl::StrCat(m.n_ok), Fixed(m.ttft_ms.p50, 1),
                          Fixed(m.ttft_ms.p95, 1), Fixed(m.itl_ms.p50, 2), Fixed(m.itl_ms.p95, 2),
                          Fixed(m.e2e_ms.p50, 1), Fixed(m.output_tokens_per_s, 1),
                          Fixed(MiB(m.mean_cache_bytes), 2)});
  }
  return table;
}

ReportTable SweepTable(const std::vector<PointResult>& points) {
  ReportTable table{"Sweep",
                    {"load", "requests/s", "output t/s", "good t/s", "first p50", "first p95",
                     "token p95", "errors"}};
  for (const PointResult& point : points) {
    const GroupResult& all = point.all;
    table.rows.push_back({PointLabel(point), Fixed(all.requests_per_s, 2),
                          Fixed(all.output_tokens_per_s, 1), Fixed(all.good_tokens_per_s, 1),
                          Fixed(all.ttft_ms.p50, 1), Fixed(all.ttft_ms.p95, 1),
                          Fixed(all.itl_ms.p95, 2), absl::StrCat(all.n_requests - all.n_ok)});
  }
  return table;
}

// Joins the tables that `table_of` makes of the points: the load stands before a row's name.
Json JoinedTable(const std::vector<PointResult>& points,
                 ReportTable (*table_of)(const PointResult&)) {
  ReportTable joined;
  for (const PointResult& point : points) {
    ReportTable table = table_of(point);
    for (auto& row : table.rows) row[0] = absl::StrCat(PointLabel(point), ": ", row[0]);
    table.rows.insert(table.rows.begin(), joined.rows.begin(), joined.rows.end());
    joined = std::move(table);
  }
  return joined;
}

std::string ServerPeakText(const std::optional<ServerLoad>& server) {
  if (!server.has_value()) return "-";
  return absl::StrFormat("cache %.1f of %.1f MiB, %d running, %d waiting",
                         MiB(static_cast<double>(server->cache_bytes_used)),
                         MiB(static_cast<double>(server->cache_bytes_total)), server->n_running,
                         server->n_waiting);
}

std::string GeneratorText(const PointResult& point, const GeneratorMachine& machine) {
  std::string late;
  if (point.lag_ms.n > 0) {
    late = absl::StrFormat(", requests late by %.2f ms (p99), %.1f at most", point.lag_ms.p99,
                           point.lag_ms.max);
  }
  return absl::StrFormat("%.2f of %d cores, wakes late by %.2f ms (p99)%s", point.cpu_cores,
                         machine.n_cores, point.wake_ms.p99, late);
}

Json ReportTables(const LoadReport& report) {
  ReportTable settings{"Settings", {"setting", "value"}}, notes{"Notes", {"load", "note"}};
  ReportTable machines{"Server and generator", {"load", "peak and use"}};
  for (const auto& [name, value] : report.settings) settings.rows.push_back({name, value});
  for (const PointResult& point : report.points) {
    const std::string load = PointLabel(point);
    for (const std::string& note : Notes(point, report.machine)) notes.rows.push_back({load, note});
    machines.rows.push_back(
        {load, absl::StrCat("server: ", ServerPeakText(point.server),
                            "; generator: ", GeneratorText(point, report.machine))});
  }
  Json tables = {SweepTable(report.points), JoinedTable(report.points, LatencyTable),
                 JoinedTable(report.points, MechanismTable), machines, settings};
  if (!notes.rows.empty()) tables.insert(tables.begin(), notes);
  return tables;
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
  absl::StrAppend(
      &text,
      Line("throughput",
           absl::StrCat(RatesText(all.requests_per_s, all.output_tokens_per_s),
                        absl::StrFormat(", %.1f with prompts", all.total_tokens_per_s))),
      GoodputLine(all, report.slo));
  if (!all.errors.empty()) {
    absl::StrAppend(&text,
                    Line("errors", absl::StrJoin(all.errors, ", ", absl::PairFormatter(" "))));
  }
  absl::StrAppend(&text, TableText(LatencyTable(point), "  "));
  if (point.mechanisms.size() > 1) {
    absl::StrAppend(&text, TableText(MechanismTable(point), "  "));
  }
  absl::StrAppend(&text, Line("server peak", ServerPeakText(point.server)),
                  Line("generator", GeneratorText(point, report.machine)));
  for (const std::string& note : Notes(point, report.machine)) {
    absl::StrAppend(&text, "  note: ", note, "\n");
  }
  return text;
}

std::string SweepText(const std::vector<PointResult>& points) {
  return TableText(SweepTable(points), "");
}

Json ReportDocument(const LoadReport& report) {
  Json json = BeginReport(absl::StrCat("lowkey bench: ", report.model));
  if (!report.machine.is_servers) {
    json["machine"] = "another machine than " + json["machine"].get<std::string>();
  }
  json["charts"] = LoadCharts(report);
  json["tables"] = ReportTables(report);
  json["settings"] = Json::object();
  for (const auto& [name, value] : report.settings) json["settings"][name] = value;
  json["slo"] = Json::object();
  if (report.slo.ttft_ms.has_value()) json["slo"]["ttft_ms"] = *report.slo.ttft_ms;
  if (report.slo.itl_ms.has_value()) json["slo"]["itl_ms"] = *report.slo.itl_ms;
  json["points"] = Json::array();
  for (const PointResult& point : report.points) {
    json["points"].push_back(PointJson(point, report.machine));
  }
  return json;
}

}  // namespace lowkey
