#include "client/load/bench_flags.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/connection_flags.h"
#include "engine/base/files.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/config/common_flags.h"

namespace lowkey {
namespace {

constexpr int64_t kMaxRequests = 1000000;
constexpr int64_t kMaxConcurrency = 100000;
constexpr size_t kMaxLevels = 64, kMaxMixShares = 16;
constexpr double kMaxRate = 1e6, kMaxBurstiness = 1e4;
constexpr int32_t kDefaultRequests = 100, kDefaultWarmup = 8;

constexpr Flag kLoadFlags[] = {
    {"concurrency", "N,...", "1", "closed loop: N requests at once, one point for each N"},
    {"rate", "R,...", "", "open loop: R requests arrive in a second, one point for each R"},
    {"burstiness", "B", "1", "open loop: 1: a Poisson process; less: in bursts; more: evenly"},
    {"requests", "N", "",
     "requests of a point [100 or 4 N; with --duration or --trace: what that holds]"},
    {"duration", "TIME", "", "begin no request of a point later than this"},
    {"warmup", "N", "", "requests before them that do not count [8 or N; of a whole trace 0]"},
    {"timeout", "TIME", "", "give up a request after this long [never]"},
    {"api", "grpc|openai", "grpc", "lowkey.v1 over gRPC, or OpenAI's API over HTTP",
     FlagKind::kValue, "grpc,openai"},
    {"http", "HOST[:PORT]", "", "where OpenAI's API is, behind a gateway [that of --server]"},
};
constexpr Flag kRequestFlags[] = {
    {"input-tokens", "LENGTHS", "128", "prompts: N, uniform:MIN-MAX or lognormal:MEDIAN,SIGMA"},
    {"output-tokens", "LENGTHS", "64", "tokens to generate, the same"},
    {"trace", "FILE", "", "arrival seconds, prompt and output tokens: CSV, or JSON lines"},
    {"text", "FILE", "", "cut prompts from this text [random tokens]"},
    {"seed", "N", "1", "same seed, same load"},
};
constexpr Flag kReportFlags[] = {
    {"slo-ttft-ms", "MS", "", "goodput: time to the first token, at most"},
    {"slo-itl-ms", "MS", "", "goodput: a request's mean time between tokens, at most"},
    {"output", "FILE", "", "write the figures as JSON"},
    {"html", "FILE", "", "write a page with tables and plots"},
};

absl::StatusOr<std::optional<double>> ReadPositive(const FlagValues& flags, std::string_view name,
                                                   double max) {
  LK_ASSIGN_OR_RETURN(const std::optional<double> value, flags.Number(name));
  if (value.has_value() && (*value <= 0 || *value > max)) {
    return flags.Error(name, absl::StrCat("a number over 0, at most ", max));
  }
  return value;
}

bool ParseRate(absl::string_view text, LoadLevel& level) {
  double& rate = level.rate_per_s.emplace();
  return absl::SimpleAtod(text, &rate) && rate > 0 && rate <= kMaxRate;
}

bool ParseConcurrency(absl::string_view text, LoadLevel& level) {
  int32_t& concurrency = level.concurrency.emplace();
  return absl::SimpleAtoi(text, &concurrency) && concurrency >= 1 && concurrency <= kMaxConcurrency;
}

// Reads levels with commas between, each with `parse`.
absl::StatusOr<std::vector<LoadLevel>> ReadList(const FlagValues& flags, std::string_view name,
                                                bool (*parse)(absl::string_view, LoadLevel&),
                                                const std::string& expected) {
  std::vector<LoadLevel> levels;
  for (const absl::string_view part : absl::StrSplit(flags.Text(name), ',')) {
    if (levels.size() == kMaxLevels || !parse(part, levels.emplace_back())) {
      return flags.Error(name, absl::StrCat(expected, "; at most ", kMaxLevels, " of them"));
    }
  }
  return levels;
}

absl::StatusOr<std::vector<LoadLevel>> ReadLevels(const FlagValues& flags) {
  if (flags.IsGiven("rate") && flags.IsGiven("concurrency")) {
    return absl::InvalidArgumentError(
        "--rate and --concurrency: both given, expected an open or a closed loop");
  }
  if (flags.IsGiven("rate")) {
    return ReadList(
        flags, "rate", ParseRate,
        absl::StrCat("requests a second, over 0 and at most ", kMaxRate, ", such as 1,2,4"));
  }
  if (flags.IsGiven("concurrency") || !flags.IsGiven("trace")) {
    return ReadList(flags, "concurrency", ParseConcurrency,
                    absl::StrCat("integers in 1..", kMaxConcurrency, ", such as 1,4,16"));
  }
  return std::vector<LoadLevel>(1);
}

absl::StatusOr<LengthDistribution> ReadLengths(const FlagValues& flags, const std::string& name) {
  return Prefixed("--" + name, ParseLengths(flags.Text(name)));
}

absl::Status ReadWorkload(const FlagValues& flags, WorkloadOptions& workload) {
  LK_ASSIGN_OR_RETURN(workload.prompt_lengths, ReadLengths(flags, "input-tokens"));
  LK_ASSIGN_OR_RETURN(workload.output_lengths, ReadLengths(flags, "output-tokens"));
  if (flags.IsGiven("trace")) {
    const std::string path = flags.Text("trace");
    LK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTraceBytes));
    LK_ASSIGN_OR_RETURN(workload.trace, ParseTrace(text, path));
  }
  LK_ASSIGN_OR_RETURN(workload.mix, ReadMix(flags));
  LK_ASSIGN_OR_RETURN(workload.sampling, ReadSampling(flags));
  LK_ASSIGN_OR_RETURN(const std::optional<uint64_t> seed, flags.Seed("seed"));
  workload.seed = seed.value_or(1);
  return absl::OkStatus();
}

// Parses one share, such as "atp --rank 1/8=0.3".
absl::StatusOr<MixShare> ParseMixShare(const FlagValues& flags, absl::string_view text) {
  const size_t equals = text.rfind('=');
  MixShare item;
  if (equals == absl::string_view::npos ||
      !absl::SimpleAtod(text.substr(equals + 1), &item.weight) ||
      !(item.weight > 0 && item.weight <= 1e6)) {
    return flags.Error("attention", "NAME=SHARE,... with shares over 0, such as standard=7,atp=3");
  }
  item.label = std::string(absl::StripAsciiWhitespace(text.substr(0, equals)));
  LK_ASSIGN_OR_RETURN(
      item.attention,
      Prefixed("--attention", ParseAttention(absl::StrSplit(item.label, ' ', absl::SkipEmpty()))));
  if (!item.attention.mechanism.has_value()) {
    return flags.Error("attention", "the name of a mechanism before each share");
  }
  LK_RETURN_IF_ERROR(ResolveSelectable(item.attention, {}).status());
  return item;
}

// Reads one mechanism for all requests from generate's own flags.
absl::StatusOr<std::vector<MixShare>> ReadOnlyMechanism(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const AttentionChoice attention, ReadAttention(flags));
  if (attention.mechanism.has_value()) {
    LK_RETURN_IF_ERROR(ResolveSelectable(attention, {}).status());
  }
  std::string label = attention.mechanism.value_or("the server's default");
  for (const Flag& flag : AttentionFlags()) {
    if (flag.name == "attention" || !flags.IsGiven(flag.name)) continue;
    absl::StrAppend(&label, " --", std::string(flag.name));
    if (flag.kind != FlagKind::kSwitch) absl::StrAppend(&label, " ", flags.Text(flag.name));
  }
  return std::vector<MixShare>{{label, attention, 1}};
}

}  // namespace

std::vector<FlagGroup> BenchFlagGroups() {
  return {{"Server", ClientFlags()},     {"Load", kLoadFlags},
          {"Requests", kRequestFlags},   {"Attention", AttentionFlags()},
          {"Sampling", SamplingFlags()}, {"Report", kReportFlags},
          {"General", GeneralFlags()}};
}

absl::StatusOr<std::vector<MixShare>> ReadMix(const FlagValues& flags) {
  const std::string text = flags.Text("attention");
  if (text.find('=') == std::string::npos) return ReadOnlyMechanism(flags);
  for (const Flag& flag : AttentionFlags()) {
    if (flag.name == "attention" || !flags.IsGiven(flag.name)) continue;
    return flags.Error(flag.name,
                       "it beside its mechanism's name when --attention gives shares, "
                       "such as \"standard=7,atp --rank 1/8=3\"");
  }
  std::vector<MixShare> mix;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    LK_ASSIGN_OR_RETURN(mix.emplace_back(), ParseMixShare(flags, part));
  }
  if (mix.size() > kMaxMixShares) {
    return flags.Error("attention", absl::StrCat("at most ", kMaxMixShares, " shares"));
  }
  return mix;
}

absl::StatusOr<BenchPlan> ReadBenchPlan(const FlagValues& flags) {
  BenchPlan plan;
  LK_ASSIGN_OR_RETURN(plan.levels, ReadLevels(flags));
  LK_RETURN_IF_ERROR(ReadWorkload(flags, plan.workload));
  LK_ASSIGN_OR_RETURN(const std::optional<double> burstiness,
                      ReadPositive(flags, "burstiness", kMaxBurstiness));
  plan.burstiness = burstiness.value_or(1);
  LK_ASSIGN_OR_RETURN(plan.duration_s, flags.Seconds("duration"));
  LK_ASSIGN_OR_RETURN(plan.timeout_s, flags.Seconds("timeout"));
  LK_ASSIGN_OR_RETURN(plan.n_requests, flags.Int("requests", 1, kMaxRequests / 2));
  LK_ASSIGN_OR_RETURN(plan.n_warmup, flags.Int("warmup", 0, kMaxRequests / 2));
  const auto n_rows = static_cast<int64_t>(plan.workload.trace.size());
  if (n_rows > 0 && !plan.n_requests.has_value() && plan.n_warmup.value_or(0) >= n_rows) {
    return flags.Error("warmup", absl::StrCat("fewer than the trace's ", n_rows, " requests"));
  }
  LK_ASSIGN_OR_RETURN(plan.slo.ttft_ms, ReadPositive(flags, "slo-ttft-ms", 1e9));
  LK_ASSIGN_OR_RETURN(plan.slo.itl_ms, ReadPositive(flags, "slo-itl-ms", 1e9));
  return plan;
}

PointOptions MakePoint(const BenchPlan& plan, size_t index) {
  const LoadLevel& level = plan.levels[index];
  PointOptions point;
  point.point = static_cast<int64_t>(index);
  point.timeout_s = plan.timeout_s;
  point.duration_s = plan.duration_s.value_or(point.duration_s);
  const std::vector<TraceRow>& trace = plan.workload.trace;
  if (!plan.n_requests.has_value() && !trace.empty()) {
    point.n_warmup = plan.n_warmup.value_or(0);
    point.n_requests = static_cast<int64_t>(trace.size());
  } else {
    const int32_t concurrency = level.concurrency.value_or(0);
    const int64_t n_default = plan.duration_s.has_value()
                                  ? kMaxRequests / 2
                                  : std::max(kDefaultRequests, 4 * concurrency);
    point.n_warmup = plan.n_warmup.value_or(std::max(kDefaultWarmup, concurrency));
    point.n_requests = plan.n_requests.value_or(n_default) + point.n_warmup;
  }
  if (level.concurrency.has_value()) {
    point.concurrency = *level.concurrency;
    return point;
  }
  if (level.rate_per_s.has_value()) {
    point.arrivals_s =
        DrawArrivals({*level.rate_per_s, plan.burstiness, plan.workload.seed, point.duration_s},
                     point.n_requests);
  } else {
    for (const TraceRow& row : trace) {
      const bool is_wanted = row.arrival_s <= point.duration_s &&
                             static_cast<int64_t>(point.arrivals_s.size()) < point.n_requests;
      if (is_wanted) point.arrivals_s.push_back(row.arrival_s);
    }
  }
  point.n_requests = static_cast<int64_t>(point.arrivals_s.size());
  return point;
}

std::vector<std::pair<std::string, std::string>> SetFlags(const FlagValues& flags) {
  std::vector<std::pair<std::string, std::string>> set;
  for (const FlagGroup& group : BenchFlagGroups()) {
    for (const Flag& flag : group.flags) {
      // Defaults of the load are printed with each point or have no effect.
      const bool is_told = group.title == "Load" && !flags.IsGiven(flag.name);
      if (is_told || !flags.Has(flag.name)) continue;
      set.emplace_back(absl::StrCat("--", std::string(flag.name)),
                       absl::StrJoin(flags.Texts(flag.name), " "));
    }
  }
  return set;
}

}  // namespace lowkey
