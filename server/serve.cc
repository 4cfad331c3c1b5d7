// Implements `lowkey serve`: loads a model and answers until told to stop.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/machine.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/device.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_memory.h"
#include "server/all_commands.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/machine_profile.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/signals.h"
#include "server/config/terminal/terminal.h"
#include "server/front/ops.h"
#include "server/front/server.h"
#include "server/log/line_log.h"
#include "server/log/request_log.h"
#include "server/metrics/metrics.h"
#include "server/metrics/watched_counters.h"
#include "server/net/address.h"
#include "server/net/deliveries.h"
#include "server/serve_options.h"
#include "server/text/text_service.h"
#include "server/trace/otlp_exporter.h"
#include "server/version.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {
namespace {

// The longest time between Admin.Drain and the beginning of the grace period.
constexpr absl::Duration kDrainPoll = absl::Milliseconds(50);

struct LoadedModel {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

void Say(const ServeOptions& options, const std::string& line) {
  if (!options.is_json) options.log->Write(line);
}

// Says how the device computes attention and products with each shape of a weight.
void SayChoices(const ServeOptions& options, const ModelConfig& config) {
  const Device& device = *options.engine.device;
  if (device.AttendsByWarpgroups(config.head_dim)) Say(options, "prompts attend by warpgroups");
  for (const ProductChoice& choice : device.product_choices()) {
    std::string timings;
    for (const auto& [n_rows, us] : choice.timings) {
      absl::StrAppendFormat(&timings, "%s%.1f us for %d rows", timings.empty() ? ": " : ", ", us,
                            n_rows);
    }
    Say(options, absl::StrCat("products with ", choice.n_out, " x ", choice.n_in,
                              choice.rounded ? " to bfloat16" : "", " by ", choice.way, timings,
                              choice.refused.empty() ? "" : "; refused: ", choice.refused));
  }
}

// Warns where the model's context is shorter than the one that is asked for.
void SayShorterContext(const FlagValues& flags, const ServeOptions& options,
                       const ModelConfig& config) {
  if (options.engine.context_tokens <= config.context_tokens) return;
  const absl::Status shorter = flags.Error(
      "context", absl::StrCat("at most the model's context of ", CountText(config.context_tokens),
                              " tokens, which is used"));
  options.log->Write(absl::StrCat("lowkey serve: warning: ", shorter.message()));
}

// Warns where the model's own chat template cannot be used: every chat would be refused.
void SayUnusableTemplate(const ServeOptions& options) {
  const absl::Status fault = options.chat_templates.Fault();
  if (fault.ok()) return;
  options.log->Write(absl::StrCat(
      "lowkey serve: warning: chats will be refused: ", TerminalSafe(std::string(fault.message())),
      "; --chat-template FILE gives another template"));
}

absl::StatusOr<LoadedModel> Load(const FlagValues& flags, ServeOptions& options,
                                 const OpenedModel& opened) {
  Say(options, absl::StrCat("loading ", opened.path()));
  LoadedModel model;
  LK_ASSIGN_OR_RETURN(model.tokenizer, opened.MakeTokenizer());
  LK_ASSIGN_OR_RETURN(auto weights, opened.Weights());
  LK_RETURN_IF_ERROR(ReadCalibration(flags, opened, *weights, options.engine));
  LK_RETURN_IF_ERROR(CheckCalibrated(options.defaults.attention, options.engine));
  LK_RETURN_IF_ERROR(
      Prefixed(opened.path(), CheckModelFits(*weights, options.engine, AvailableMemoryBytes())));
  options.log->Flush(absl::Seconds(1));  // the bar writes by itself
  ProgressBar bar(stderr, "loading");
  auto progress = [&bar](int64_t done, int64_t total) {
    // No request is admitted yet, so none has to finish first.
    if (WaitForStopSignal(absl::ZeroDuration())) std::_Exit(130);
    bar.Show(done, total);
  };
  LK_ASSIGN_OR_RETURN(model.engine,
                      CreateEngine(std::move(weights), options.engine, std::move(progress)));
  LK_RETURN_IF_ERROR(CheckAttendable(options.defaults.attention, *model.engine));
  SayShorterContext(flags, options, model.engine->config());
  if (options.engine.device != nullptr) SayChoices(options, model.engine->config());
  if (model.tokenizer->vocab_size() > model.engine->config().vocab_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        opened.path(), ": the tokenizer has ", model.tokenizer->vocab_size(),
        " pieces, expected at most the model's vocab_size ", model.engine->config().vocab_size));
  }
  return model;
}

void SayReady(const ServeOptions& options, const std::string& model, const Server& server,
              absl::Duration time_to_ready) {
  const double ready_ms = absl::ToDoubleMilliseconds(time_to_ready);
  if (options.is_json) {
    nlohmann::ordered_json json = {{"event", "ready"},
                                   {"model", model},
                                   {"address", server.address()},
                                   {"port", server.port()},
                                   {"ready_ms", ready_ms}};
    if (options.metrics.has_value()) json["metrics_port"] = options.metrics->port;
    std::printf("%s\n", JsonLine(json).c_str());
  } else {
    const std::string url = absl::StrCat(
        options.network.credentials.tls == nullptr ? "http" : "https", "://", server.address());
    Say(options, absl::StrCat("OpenAI's API on ", url, "/v1, a page on ", url));
    std::printf("ready: %s on %s after %.0f ms\n", model.c_str(), server.address().c_str(),
                ready_ms);
  }
  std::fflush(stdout);
}

std::string LimitsText(const Engine& engine) {
  const EngineStats stats = engine.Stats();
  const EngineLimits limits = engine.limits();
  return absl::StrCat(BytesText(stats.weight_bytes), " of weights as ", stats.dtype, ", ",
                      BytesText(limits.cache_bytes), " of cache, context ",
                      CountText(limits.context_tokens), " tokens, ", stats.n_threads,
                      stats.n_threads == 1 ? " thread (" : " threads (", stats.processor, ")");
}

void ReadCredentialsAgain(const ServeOptions& options) {
  const Credentials& credentials = options.network.credentials;
  options.log->Write(credentials.tokens == nullptr && credentials.tls == nullptr
                         ? "lowkey serve: SIGHUP: there are no credentials to read again"
                         : "lowkey serve: SIGHUP: reading the credentials again");
  credentials.ReadAgain();
}

// Serves until a signal, Admin.Drain or a failure of the device, then finishes admitted requests.
void RunUntilStopped(const ServeOptions& options, const Engine& engine, Server& server) {
  const auto serve_until = [&](absl::Time end) {
    while (SteadyNow() < end && !server.is_draining() && engine.Health().ok() &&
           !WaitForStopSignal(kDrainPoll)) {
      if (TakeHangUp()) RunContained([&] { ReadCredentialsAgain(options); });
    }
  };
  serve_until(absl::InfiniteFuture());
  if (options.drain_delay > absl::ZeroDuration() && !server.is_draining() && engine.Health().ok()) {
    server.AnnounceDrain();
    Say(options, absl::StrCat("a drain begins in ", absl::FormatDuration(options.drain_delay)));
    serve_until(SteadyNow() + options.drain_delay);
  }
  Say(options, absl::StrCat("draining: admitted requests have ",
                            absl::FormatDuration(options.grace), " to finish"));
  const bool drained = server.Shutdown(SteadyNow() + options.grace,
                                       [] { return WaitForStopSignal(absl::ZeroDuration()); });
  Say(options, drained ? "stopped" : "stopped: unfinished requests were ended");
}

// Has the metrics show what the log and the traces have lost; all arguments but the metrics must
// outlive the metrics' readers.
void WatchLogs(const LineLog& log, const std::optional<OtlpExporter>& traces, Metrics& metrics) {
  metrics.WatchCounter(kDroppedLogLines, "Log lines that nobody read in time.",
                       [&log] { return log.n_dropped(); });
  if (!traces.has_value()) return;
  metrics.WatchCounter(kExportedSpans, "Spans that the collector has taken.",
                       [&traces] { return traces->n_exported(); });
  metrics.WatchCounter(kDroppedSpans, "Spans that the collector has not taken.",
                       [&traces] { return traces->n_dropped(); });
}

// Gives the engine its rates. The last copy of the result is destroyed once no rates can come any
// more, whether any were measured or not; `measuring` is false from then on.
std::function<void(SelectionProfile)> RatesTaker(
    Engine& engine, const std::shared_ptr<std::atomic<bool>>& measuring) {
  std::shared_ptr<void> end(nullptr, [measuring](void*) { *measuring = false; });
  return [&engine, end = std::move(end)](SelectionProfile measured) {
    engine.SetProfile(std::move(measured));
  };
}

absl::Status RunServe(const FlagValues& flags) {
  const absl::Time start = SteadyNow();
  FillStandardFiles();
  IgnoreBrokenPipes();
  BlockStopSignals();
  BlockHangUp();
  LineLog log(STDERR_FILENO);
  LK_ASSIGN_OR_RETURN(ServeOptions options, ReadServeOptions(flags, log));
  LK_ASSIGN_OR_RETURN(const std::string name, OpenedModel::Name(flags));
  Deliveries deliveries(/*gathers=*/true);
  options.engine.after_delivery = [&deliveries] { deliveries.Flush(); };
  options.network.deliveries = &deliveries;
  const auto measuring = std::make_shared<std::atomic<bool>>(options.measures_profile);
  options.network.is_measuring = [measuring] { return measuring->load(); };
  LoadedModel model;  // outlives the metrics' readers
  Metrics metrics(name);
  std::optional<OtlpExporter> traces;  // outlives the metrics' readers too
  if (options.traces.has_value()) traces.emplace(*options.traces);
  WatchLogs(log, traces, metrics);
  std::unique_ptr<OpsServer> http;
  if (options.metrics.has_value()) {
    LK_ASSIGN_OR_RETURN(http,
                        OpsServer::Start(metrics, options.metrics->host, options.metrics->port));
    options.metrics->port = http->port();
    Say(options, absl::StrCat("metrics on http://",
                              JoinAddress(options.metrics->host, http->port()), "/metrics"));
  }
  log.Flush(absl::Seconds(1));  // what is said of fetching a model does not pass through the log
  LK_ASSIGN_OR_RETURN(const OpenedModel opened, OpenedModel::Open(flags));
  if (!flags.IsGiven("chat-template")) options.chat_templates = opened.MakeChatTemplates();
  SayUnusableTemplate(options);
  LK_ASSIGN_OR_RETURN(model, Load(flags, options, opened));
  metrics.SetEngine(model.engine.get());
  LK_ASSIGN_OR_RETURN(const SamplingChoice sampling, ReadSampling(flags));
  LK_ASSIGN_OR_RETURN(options.defaults.sampling,
                      ResolveSampling(sampling, {}, model.engine->config().vocab_size));
  if (sampling.temperature.has_value()) options.network.openai.temperature.reset();
  RequestLog requests(flags.Switch("log-requests") ? &log : nullptr,
                      traces.has_value() ? &*traces : nullptr);
  if (flags.Switch("log-requests") || traces.has_value()) options.network.log = &requests;
  TextService service(
      *model.engine, *model.tokenizer,
      {name, options.defaults, options.chat_templates, &metrics, flags.Texts("model-alias")});
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                      Server::Start(service, options.network));
  Say(options, LimitsText(*model.engine));
  SayReady(options, name, *server, SteadyNow() - start);
  std::optional<MachineProfile> profile;
  if (options.measures_profile) {
    LK_ASSIGN_OR_RETURN(auto weights, opened.Weights());
    profile.emplace(std::move(weights), options.engine, RatesTaker(*model.engine, measuring));
  }
  RunUntilStopped(options, *model.engine, *server);
  return model.engine->Health();
}

}  // namespace

Command ServeCommand() {
  Command command("serve", "serve a model over gRPC and HTTP", RunServe);
  command.spec.description =
      "Loads a model and serves, on one port, lowkey.v1 (see proto/), grpc.health.v1 and "
      "reflection over gRPC, and OpenAI's API over HTTP (http://127.0.0.1:50051/v1 unless "
      "--host and --port say otherwise). Without --model: the demo model. SIGTERM, Ctrl-C or "
      "the RPC Admin.Drain begins a drain: health and /ready say so, new work is refused, what "
      "was admitted may finish. A signal after that ends it at once. SIGHUP reads the "
      "credentials again.";
  command.spec.groups = ServeFlags();
  command.spec.examples = {
      "lowkey serve",
      "lowkey serve --model ~/models/llama --dtype bfloat16 --cache-bytes 4G",
      "lowkey serve --model ~/models/chat.gguf --chat-template chatml.jinja",
      "lowkey serve --model hf:HuggingFaceTB/SmolLM2-135M-Instruct",
      "lowkey serve --attention atp --rank 1/4 --temperature 0.7",
      "lowkey serve --attention auto --objective latency --approximate --profile profile.json",
      "lowkey serve --metrics 127.0.0.1:9090",
      "lowkey serve --otlp http://127.0.0.1:4318",
      "lowkey serve --host 0.0.0.0 --tls-cert server.pem --tls-key server.key --tokens tokens.json",
  };
  return command;
}

}  // namespace lowkey
