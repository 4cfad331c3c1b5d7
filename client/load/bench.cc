// lowkey bench: puts a server under load and reports how it did.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/notification.h"
#include "client/commands.h"
#include "client/connection_flags.h"
#include "client/load/bench_flags.h"
#include "client/load/load_client.h"
#include "client/load/report.h"
#include "client/load/run_point.h"
#include "client/load/sse_client.h"
#include "client/report/page.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "engine/base/threads/short_turns.h"
#include "server/config/command.h"
#include "server/config/terminal/signals.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "server/net/address.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

// The text goes to the server's tokenizer in one message.
constexpr size_t kMaxTextBytes = kMaxMessageBytes - 65536;

absl::Status CheckMechanisms(const std::vector<MixShare>& mix, const ServedModel& model) {
  for (const MixShare& item : mix) {
    const std::string name = item.attention.mechanism.value_or("auto");
    const std::vector<std::string>& known = model.mechanisms;
    if (name == "auto" || std::find(known.begin(), known.end(), name) != known.end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "--attention: \"", name, "\", but the server's model has ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

// Sets the fields of `workload` that depend on the model.
absl::Status FitToModel(const FlagValues& flags, const ServedModel& model, LoadClient& client,
                        WorkloadOptions& workload) {
  LK_RETURN_IF_ERROR(CheckMechanisms(workload.mix, model));
  const int64_t least =
      int64_t{MinLength(workload.prompt_lengths)} + MinLength(workload.output_lengths);
  if (workload.trace.empty() && least > model.context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("--input-tokens and --output-tokens: at least ", least,
                     " tokens together, but the model's context has ", model.context_tokens));
  }
  workload.vocab_size = model.vocab_size;
  workload.context_tokens = model.context_tokens;
  workload.special_tokens = model.special_tokens;
  if (!flags.IsGiven("text")) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.Text("text"), kMaxTextBytes));
  LK_RETURN_IF_ERROR(CheckUtf8("--text", text));
  LK_ASSIGN_OR_RETURN(workload.text, client.Tokenize(text));
  if (workload.text.empty()) return flags.Error("text", "a file with text in it");
  return absl::OkStatus();
}

// A progress line that overwrites itself on a terminal and is silent elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(std::string label) : label_(std::move(label)) {}
  ~ProgressLine() {
    if (is_shown_) std::fputs("\r\033[K", stderr);
  }

  void Show(const PointProgress& progress) const {
    if (!is_shown_) return;
    std::string line = absl::StrFormat("\r%s  %d of %d  %d running  %.0f tokens/s  %.0f s", label_,
                                       progress.n_ended, progress.n_total, progress.n_in_flight,
                                       progress.tokens_per_s, progress.elapsed_s);
    if (progress.ttft_ms.has_value()) {
      absl::StrAppend(&line, absl::StrFormat("  first token %.0f ms", *progress.ttft_ms));
    }
    if (progress.n_failed > 0) absl::StrAppend(&line, "  ", progress.n_failed, " failed");
    std::fputs((line + "\033[K").c_str(), stderr);
    std::fflush(stderr);
  }

 private:
  const std::string label_;
  const bool is_shown_ = IsTerminal(stderr);
};

LoadReport EmptyReport(const FlagValues& flags, const ConnectOptions& connection,
                       const ServedModel& model, const BenchPlan& plan) {
  LoadReport report;
  report.model = model.name;
  report.settings = {{"model", model.name}, {"weights", model.dtype}};
  if (model.n_threads > 0) {
    report.settings.push_back({"server", absl::StrCat("lowkey ", model.server_version)});
    report.settings.push_back(
        {"computes with", absl::StrCat(model.instruction_set, ", ", model.n_threads, " threads")});
  }
  for (auto& setting : SetFlags(flags)) report.settings.push_back(std::move(setting));
  report.slo = plan.slo;
  report.machine.n_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  report.machine.is_servers = IsLoopback(HostOf(connection.address));
  return report;
}

// Runs one point after another and prints each when it ends.
absl::Status RunSweep(const FlagValues& flags, const BenchPlan& plan, LoadTarget& client,
                      LoadReport& report) {
  absl::Notification cancelled;
  const SignalWatcher watcher([&](int) {
    if (!cancelled.HasBeenNotified()) cancelled.Notify();
    client.Cancel();
  });
  const Workload workload(plan.workload);
  for (size_t i = 0; i < plan.levels.size(); ++i) {
    PointResult result;
    result.rate_per_s = plan.levels[i].rate_per_s;
    result.concurrency = plan.levels[i].concurrency;
    PointRun run;
    {
      ProgressLine line(
          absl::StrCat("point ", i + 1, " of ", plan.levels.size(), ": ", PointLabel(result)));
      run = RunPoint(workload, MakePoint(plan, i), client, cancelled,
                     [&line](const PointProgress& progress) { line.Show(progress); });
    }
    if (cancelled.HasBeenNotified()) return absl::CancelledError("interrupted");
    Evaluate(run, plan.workload.mix, plan.slo, result);
    if (i == 0) report.prompt_times = TimesByPrompt(run);
    if (!flags.Switch("json")) std::printf("%s\n", PointText(result, report).c_str());
    std::fflush(stdout);
    report.points.push_back(std::move(result));
  }
  return absl::OkStatus();
}

// Returns where OpenAI's API is: behind a gateway it may have an address of its own.
absl::StatusOr<ConnectOptions> HttpConnection(const FlagValues& flags,
                                              const ConnectOptions& connection) {
  if (!flags.IsGiven("http")) return connection;
  if (flags.Text("api") != "openai") return flags.Error("http", "--api openai");
  return WithAddress(flags, connection, flags.Text("http"));
}

absl::Status RunBench(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(BenchPlan plan, ReadBenchPlan(flags));
  LK_ASSIGN_OR_RETURN(const ConnectOptions connection, ReadConnection(flags));
  LK_ASSIGN_OR_RETURN(const ConnectOptions http_connection, HttpConnection(flags, connection));
  LK_RETURN_IF_ERROR(CheckWritable(flags, {"output", "html"}));
  // This comes before the client starts threads, so that Ctrl-C reaches the watcher alone.
  BlockStopSignals();
  // The server is to be measured, and not how long its cores keep the client waiting.
  TakeShortTurns();
  LoadClient client(connection);
  LK_ASSIGN_OR_RETURN(const ServedModel model, client.GetModel());
  LK_RETURN_IF_ERROR(FitToModel(flags, model, client, plan.workload));
  LoadReport report = EmptyReport(flags, connection, model, plan);
  std::unique_ptr<SseClient> http;
  if (flags.Text("api") == "openai") {
    LK_ASSIGN_OR_RETURN(http, SseClient::Connect(http_connection, model.name, client));
  } else if (flags.Text("api") != "grpc") {
    return flags.Error("api", "grpc or openai");
  }
  LoadTarget& target = http == nullptr ? static_cast<LoadTarget&>(client) : *http;
  LK_RETURN_IF_ERROR(RunSweep(flags, plan, target, report));
  const nlohmann::ordered_json document = ReportDocument(report);
  if (flags.Switch("json")) {
    std::printf("%s\n", ReportJson(document).c_str());
  } else if (report.points.size() > 1) {
    std::printf("%s", SweepText(report.points).c_str());
  }
  if (flags.IsGiven("output")) {
    LK_RETURN_IF_ERROR(WriteTextFile(flags.Text("output"), ReportJson(document) + "\n"));
  }
  if (flags.IsGiven("html")) return WriteTextFile(flags.Text("html"), ReportPage(document));
  return absl::OkStatus();
}

}  // namespace

Command BenchCommand() {
  Command command("bench", "put a running server under load: throughput, latencies, goodput",
                  RunBench);
  command.spec.description =
      "Sends requests to a running server and reports throughput, time to the first token, time "
      "between tokens and end to end with percentiles, goodput within --slo-*, errors by code, "
      "and the server's peak of cache. In a closed loop (--concurrency) the next request begins "
      "when one ends; in an open loop (--rate, --trace) requests arrive whether or not the server "
      "keeps up, and latencies count from their arrival. Several rates or concurrencies are a "
      "sweep. --attention may give shares: \"standard=7,atp --rank 1/8=3\". Outputs run past the "
      "end of sequence to the length that was drawn. When the generator itself is the bottleneck, "
      "the report says so.";
  command.spec.groups = BenchFlagGroups();
  command.spec.examples = {
      "lowkey bench --concurrency 1,4,16,64 --html load.html",
      "lowkey bench --rate 2,4,8 --duration 60s --slo-ttft-ms 500 --slo-itl-ms 100",
      "lowkey bench --rate 4 --attention \"standard=0.7,atp --rank 1/8=0.3\" "
      "--input-tokens lognormal:400,0.8",
      "lowkey bench --trace day.csv --output load.json",
  };
  return command;
}

}  // namespace lowkey
