#include "client/load/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"

namespace lowkey {
namespace {

// A generator that is later than both this and this share of the median first token is noted.
constexpr double kLateMs = 5, kLateShare = 0.05;
constexpr double kBusyShare = 0.9;
// One thread begins all requests: if it is late with less use than this, the machine is overloaded.
constexpr double kBusyCores = 0.5;
// From this share of the server's own machine on, the generator visibly slows what it measures.
constexpr double kTakenShare = 0.1;
constexpr int64_t kRequestsForP99 = 100;

double TtftMs(const RequestRecord& record) {
  return 1e3 * (*record.stream.first_token_s - record.due_s);
}

bool IsGood(const RequestRecord& record, const Slo& slo) {
  if (!record.stream.status.ok()) return false;
  const bool has_token = record.stream.first_token_s.has_value();
  if (slo.ttft_ms.has_value() && (!has_token || TtftMs(record) > *slo.ttft_ms)) return false;
  return !slo.itl_ms.has_value() || MeanGapMs(record.stream).value_or(0) <= *slo.itl_ms;
}

// One group's values, from which Finish makes its summaries.
struct Gathered {
  std::vector<double> ttft_ms, itl_ms, e2e_ms, outside_ms, refusal_ms;
  int64_t n_good_tokens = 0;
  double cache_bytes = 0;
};

void Add(const RequestRecord& record, const Slo& slo, GroupResult& result, Gathered& gathered) {
  const StreamRecord& stream = record.stream;
  const double e2e_ms = 1e3 * (stream.ended_s - record.due_s);
  ++result.n_requests;
  if (!stream.status.ok()) {
    ++result.errors[absl::StatusCodeToString(stream.status.code())];
    if (!stream.first_token_s.has_value()) gathered.refusal_ms.push_back(e2e_ms);
    return;
  }
  ++result.n_ok;
  result.n_prompt_tokens += record.n_prompt_tokens;
  result.n_output_tokens += stream.n_output_tokens;
  if (IsGood(record, slo)) {
    ++result.n_good;
    gathered.n_good_tokens += stream.n_output_tokens;
  }
  if (stream.first_token_s.has_value()) gathered.ttft_ms.push_back(TtftMs(record));
  gathered.itl_ms.insert(gathered.itl_ms.end(), stream.gaps_ms.begin(), stream.gaps_ms.end());
  gathered.e2e_ms.push_back(e2e_ms);
  gathered.outside_ms.push_back(e2e_ms - 1e3 * stream.engine_s);
  gathered.cache_bytes += static_cast<double>(stream.peak_cache_bytes);
}

void Finish(double seconds, GroupResult& result, Gathered& gathered) {
  const auto per_second = [seconds](int64_t n) {
    return seconds > 0 ? static_cast<double>(n) / seconds : 0;
  };
  result.requests_per_s = per_second(result.n_ok);
  result.output_tokens_per_s = per_second(result.n_output_tokens);
  result.total_tokens_per_s = per_second(result.n_prompt_tokens + result.n_output_tokens);
  result.good_requests_per_s = per_second(result.n_good);
  result.good_tokens_per_s = per_second(gathered.n_good_tokens);
  result.ttft_ms = Summarize(std::move(gathered.ttft_ms));
  result.itl_ms = Summarize(std::move(gathered.itl_ms));
  result.e2e_ms = Summarize(std::move(gathered.e2e_ms));
  result.outside_ms = Summarize(std::move(gathered.outside_ms));
  result.refusal_ms = Summarize(std::move(gathered.refusal_ms));
  if (result.n_ok > 0) {
    result.mean_cache_bytes = gathered.cache_bytes / static_cast<double>(result.n_ok);
  }
}

GroupResult Group(const PointRun& run, std::optional<size_t> mix_index, double seconds,
                  const Slo& slo) {
  GroupResult result;
  Gathered gathered;
  for (const RequestRecord& record : run.records) {
    if (record.is_warmup || (mix_index.has_value() && record.mix_index != *mix_index)) continue;
    Add(record, slo, result, gathered);
  }
  Finish(seconds, result, gathered);
  return result;
}

// Returns the seconds from the first counted request's due time to the last end.
double CountedSeconds(const PointRun& run) {
  double begin = 1e300, end = -1e300;
  for (const RequestRecord& record : run.records) {
    if (record.is_warmup) continue;
    begin = std::min(begin, record.due_s);
    end = std::max(end, record.stream.ended_s);
  }
  return std::max(0.0, end - begin);
}

}  // namespace

Summary Summarize(std::vector<double> values) {
  Summary summary;
  if (values.empty()) return summary;
  std::sort(values.begin(), values.end());
  const auto at = [&values](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  summary.n = static_cast<int64_t>(values.size());
  summary.mean =
      std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  summary.p50 = at(0.5);
  summary.p90 = at(0.9);
  summary.p95 = at(0.95);
  summary.p99 = at(0.99);
  summary.max = values.back();
  return summary;
}

std::optional<double> MeanGapMs(const StreamRecord& stream) {
  if (!stream.first_token_s.has_value() || stream.n_output_tokens < 2) return std::nullopt;
  const double sum_ms = std::accumulate(stream.gaps_ms.begin(), stream.gaps_ms.end(), 0.0);
  return sum_ms / static_cast<double>(stream.n_output_tokens - 1);
}

void Evaluate(const PointRun& run, const std::vector<MixShare>& mix, const Slo& slo,
              PointResult& result) {
  result.seconds = CountedSeconds(run);
  result.all = Group(run, std::nullopt, result.seconds, slo);
  result.all.label = "all";
  for (size_t i = 0; i < mix.size(); ++i) {
    result.mechanisms.push_back(Group(run, i, result.seconds, slo));
    result.mechanisms.back().label = mix[i].label;
  }
  for (const RequestRecord& record : run.records) {
    result.n_warmup += record.is_warmup ? 1 : 0;
    result.n_cut += record.is_cut && !record.is_warmup ? 1 : 0;
  }
  result.cpu_cores = run.generator.cpu_cores;
  result.lag_ms = Summarize(run.generator.lags_ms);
  result.wake_ms = Summarize(run.generator.wakes_ms);
  result.server = run.server;
}

std::vector<std::string> Notes(const PointResult& result, const GeneratorMachine& machine) {
  std::vector<std::string> notes;
  const double late_ms = std::max(kLateMs, kLateShare * result.all.ttft_ms.p50);
  const double share = result.cpu_cores / machine.n_cores;
  const bool is_late = result.lag_ms.p99 > late_ms;
  if (is_late && result.cpu_cores > kBusyCores) {
    notes.push_back(absl::StrFormat(
        "THE GENERATOR IS THE BOTTLENECK: it began requests up to %.1f ms (p99) after their "
        "arrival; latencies include that. Ask for a lower rate or shorter prompts, or use several "
        "generators.",
        result.lag_ms.p99));
  } else if (is_late || result.wake_ms.p99 > late_ms) {
    notes.push_back(absl::StrFormat(
        "the generator's machine is overloaded: requests began up to %.1f ms (p99) after their "
        "arrival, and a sleeping thread woke up to %.1f ms late; latencies include as much",
        result.lag_ms.p99, result.wake_ms.p99));
  }
  if (share > kBusyShare) {
    notes.push_back(absl::StrFormat(
        "THE GENERATOR IS THE BOTTLENECK: it used %.1f of %d cores; the server could do more.",
        result.cpu_cores, machine.n_cores));
  } else if (machine.is_servers && share > kTakenShare) {
    notes.push_back(absl::StrFormat(
        "the generator took %.2f of %d cores of the server's own machine: from another machine the "
        "figures would be better",
        result.cpu_cores, machine.n_cores));
  }
  if (result.all.n_requests == 0) {
    notes.emplace_back("no request began after the warm-up");
  } else if (result.all.n_ok == 0) {
    notes.emplace_back("no request ended well");
  } else if (result.all.n_ok < kRequestsForP99) {
    notes.push_back(absl::StrFormat("%d requests: p99 is the slowest of them", result.all.n_ok));
  }
  if (result.n_cut > 0) {
    notes.push_back(absl::StrFormat("%d of %d requests were cut to the model's context",
                                    result.n_cut, result.all.n_requests));
  }
  return notes;
}

}  // namespace lowkey
