// Implements `lowkey serve`: loads a model and answers until told to stop.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "engine/base/contained.h"
#include "engine/base/machine.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/device.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_memory.h"
#include "server/all_commands.h"
#include "server/auth/credential_flags.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/machine_profile.h"
#include "server/config/opened_model.h"
#include "server/config/profile.h"
#include "server/config/terminal/signals.h"
#include "server/config/terminal/terminal.h"
#include "server/config/token_text.h"
#include "server/front/ops.h"
#include "server/front/server.h"
#include "server/line_log.h"
#include "server/metrics/metrics.h"
#include "server/metrics/watched_counters.h"
#include "server/model_files/load_chat_templates.h"
#include "server/net/address.h"
#include "server/net/deliveries.h"
#include "server/net/listening.h"
#include "server/request_log.h"
#include "server/text_service.h"
#include "server/trace/otlp_exporter.h"
#include "server/version.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {
namespace {

constexpr Flag kNetworkFlags[] = {
    {"host", "ADDRESS", "127.0.0.1", "listen here; other than loopback it needs credentials"},
    {"port", "N", "50051", "0 picks a free port, which is printed"},
    {"metrics", "HOST:PORT", "",
     "HTTP /metrics, /health and /ready here too, without credentials and while the model loads; "
     "port 0 picks [off]"},
    {"network-threads", "N", "1", "threads that serve connections"},
    {"max-connections", "N", "1024", "in all; half of them from one address"},
    {"connection-age", "TIME", "",
     "end older connections once their requests are over, so that clients spread again [off]"},
    {"drain-delay", "TIME", "0",
     "how long requests are still admitted after a signal while health and /ready say that the "
     "server drains, for balancers that ask them"},
    {"grace", "TIME", "30", "how long admitted requests may run on once a drain has begun"},
    {"stall-timeout", "TIME", "60", "end a stream that is not read for so long"},
    {"log-requests", "", "", "one JSON line per request on standard error, without its text",
     FlagKind::kSwitch},
};
constexpr Flag kTraceFlags[] = {
    {"otlp", "URL", "",
     "send a span per request to this OpenTelemetry collector, such as http://127.0.0.1:4318, as "
     "JSON over HTTP [off]"},
    {"otlp-ratio", "R", "1",
     "share of the traces that begin here that is sampled, 0 to 1; a caller's trace is as the "
     "caller says"},
};
constexpr Flag kHttpFlags[] = {
    {"model-alias", "NAME", "", "another name that requests may call the model by",
     FlagKind::kRepeated},
    {"unknown-fields", "refuse|ignore", "refuse",
     "what happens to requests with fields that the server does not know", FlagKind::kValue,
     "refuse,ignore"},
    {"cors-origin", "ORIGIN", "",
     "pages of this origin may call, such as https://app.example; * for all [none]",
     FlagKind::kRepeated},
    {"allowed-hosts", "NAME", "",
     "browsers may call the server by this name where no token is asked for [localhost]",
     FlagKind::kRepeated},
};
constexpr Flag kChatFlags[] = {
    {"chat-template", "FILE", "", "write conversations as this Jinja template does [the model's]"},
    {"tool-format", "FORMAT", "auto",
     "how the model writes calls of tools: hermes, llama3 or mistral; none: calls are text; "
     "auto: as the chat template teaches it",
     FlagKind::kValue, "auto,none,hermes,llama3,mistral"},
};
// The longest time between Admin.Drain and the beginning of the grace period.
constexpr absl::Duration kDrainPoll = absl::Milliseconds(50);
// Between the end of a stream that was not read and that of its connection.
constexpr absl::Duration kTimeToTell = absl::Seconds(10);
constexpr size_t kMaxProfileBytes = size_t{1} << 20;
constexpr Flag kSelectionFlags[] = {
    {"profile", "FILE", "",
     "this machine's rates, as lowkey crossover --output wrote them; none: do without [measured "
     "once in the background, and kept in ~/.cache/lowkey]"},
};
constexpr Flag kDefaultFlags[] = {
    {"max-new-tokens", "N", "128", "tokens to generate"},
};

struct ServeOptions {
  LineLog* log = nullptr;  // everything that is said on standard error while serving
  ServerOptions network;
  struct Metrics {
    std::string host;
    int port = 0;
  };
  std::optional<Metrics> metrics;
  std::optional<OtlpOptions> traces;
  EngineOptions engine;
  Defaults defaults;
  ChatTemplates chat_templates;
  absl::Duration drain_delay, grace;
  bool is_json = false;
  bool measures_profile = false;  // in the background, where no profile was given
};

struct LoadedModel {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
};

absl::StatusOr<ServeOptions::Metrics> ReadMetricsAddress(const FlagValues& flags) {
  const std::string text = flags.Text("metrics");
  ServeOptions::Metrics options;
  options.host = HostOf(text);
  int port = 0;
  if (options.host.empty() || options.host == text ||
      !absl::SimpleAtoi(text.substr(text.rfind(':') + 1), &port) || port < 0 || port > 65535) {
    return flags.Error("metrics", "an address such as 127.0.0.1:9090");
  }
  options.port = port;
  if (!flags.Switch("insecure") && !IsLoopback(options.host)) {
    return flags.Error("metrics", "a loopback address, as nothing guards it, or --insecure");
  }
  LK_RETURN_IF_ERROR(CheckCanListen(options.host, options.port));
  return options;
}

absl::StatusOr<std::optional<OtlpOptions>> ReadTraces(const FlagValues& flags, LineLog& log) {
  OtlpOptions options;
  LK_RETURN_IF_ERROR(flags.ReadNumber("otlp-ratio", options.root_ratio));
  if (!(options.root_ratio >= 0 && options.root_ratio <= 1)) {
    return flags.Error("otlp-ratio", "a number in 0..1");
  }
  if (!flags.IsGiven("otlp")) return std::optional<OtlpOptions>();
  const std::optional<std::string> url = OtlpTracesUrl(flags.Text("otlp"));
  if (!url.has_value()) return flags.Error("otlp", "a URL such as http://127.0.0.1:4318");
  options.url = *url;
  options.resource = ThisProcess(kVersion);
  options.log = [&log](const std::string& line) {
    log.Write(absl::StrCat("lowkey serve: ", line));
  };
  return std::optional<OtlpOptions>(std::move(options));
}

absl::StatusOr<DraftMode> ReadDraft(const FlagValues& flags, const EngineOptions& engine) {
  if (!flags.Has("draft")) return DraftMode::kOff;
  const auto mode = ParseName<DraftMode>(flags.Text("draft"));
  if (!mode.ok()) return flags.Error("draft", ListNames(kEnumNames<DraftMode>));
  if (*mode != DraftMode::kOff && engine.device != nullptr) {
    return flags.Error("draft", "off with --device: drafts are verified on the CPU alone");
  }
  return *mode;
}

absl::Status ReadHttpOptions(const FlagValues& flags, ServerOptions& options) {
  const std::string unknown = flags.Text("unknown-fields");
  if (unknown != "refuse" && unknown != "ignore") {
    return flags.Error("unknown-fields", "refuse or ignore");
  }
  options.openai.unknown_fields =
      unknown == "ignore" ? UnknownFields::kIgnored : UnknownFields::kRefused;
  options.openai.fills_context = !flags.IsGiven("max-new-tokens");
  options.browsers.origins = flags.Texts("cors-origin");
  options.browsers.hosts = flags.Texts("allowed-hosts");
  for (const std::string& origin : options.browsers.origins) {
    const size_t slashes = origin.find("://");
    if (origin == "*" ||
        (slashes != std::string::npos && origin.find('/', slashes + 3) == std::string::npos)) {
      continue;
    }
    return flags.Error("cors-origin", "an origin such as https://app.example, or *");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ToolFormat>> ReadToolFormat(const FlagValues& flags) {
  const std::string name = flags.Text("tool-format");
  if (name == "auto") return std::optional<ToolFormat>();
  const auto format = ParseName<ToolFormat>(name);
  if (format.ok()) return std::optional<ToolFormat>(*format);
  return flags.Error("tool-format", ListNames(kEnumNames<ToolFormat>, EnumNames::kLast, "auto"));
}

// Returns a number that another build of the program has not.
int64_t ProgramTime() {
  std::error_code error;
  const auto time = std::filesystem::last_write_time("/proc/self/exe", error);
  return error ? 0 : static_cast<int64_t>(time.time_since_epoch().count());
}

absl::StatusOr<ServeOptions> ReadOptions(const FlagValues& flags, LineLog& log) {
  ServeOptions options;
  options.log = &log;
  options.network.host = flags.Text("host");
  LK_RETURN_IF_ERROR(flags.ReadInt("port", {0, 65535}, options.network.port));
  options.network.is_insecure_allowed = flags.Switch("insecure");
  LK_ASSIGN_OR_RETURN(options.network.credentials, ReadCredentials(flags, [&log](const auto& line) {
                        log.Write(absl::StrCat("lowkey serve: ", line));
                      }));
  LK_RETURN_IF_ERROR(flags.ReadSeconds("drain-delay", options.drain_delay));
  LK_RETURN_IF_ERROR(flags.ReadSeconds("grace", options.grace));
  LK_RETURN_IF_ERROR(flags.ReadSeconds("stall-timeout", options.network.stall_timeout));
  // A stream that is not read has time to end by itself, with a reason.
  absl::Duration& unread_timeout = options.network.limits.http.unread_timeout;
  unread_timeout = std::max(unread_timeout, options.network.stall_timeout + kTimeToTell);
  absl::Duration& max_age = options.network.limits.http.max_age;
  LK_RETURN_IF_ERROR(flags.ReadSeconds("connection-age", max_age));
  if (max_age == absl::ZeroDuration()) {
    return flags.Error("connection-age", "a time such as 30m");
  }
  LK_RETURN_IF_ERROR(flags.ReadInt("network-threads", {1, 4}, options.network.n_network_threads));
  LK_RETURN_IF_ERROR(
      flags.ReadInt("max-connections", {1, 1 << 20}, options.network.max_connections));
  LK_RETURN_IF_ERROR(ReadHttpOptions(flags, options.network));
  LK_RETURN_IF_ERROR(Server::CheckOptions(options.network));
  if (flags.IsGiven("metrics")) {
    LK_ASSIGN_OR_RETURN(options.metrics, ReadMetricsAddress(flags));
  }
  LK_ASSIGN_OR_RETURN(options.traces, ReadTraces(flags, log));
  options.is_json = flags.Switch("json");
  LK_ASSIGN_OR_RETURN(options.engine, ReadServingOptions(flags));
  options.engine.prefix_files.build = absl::StrCat(kVersion, " ", kCommit, " ", ProgramTime());
  options.engine.prefix_files.on_error = [&log](const absl::Status& status) {
    log.Write(absl::StrCat("lowkey serve: prefix files: ", status.message()));
  };
  LK_ASSIGN_OR_RETURN(const AttentionChoice attention, ReadAttention(flags));
  LK_ASSIGN_OR_RETURN(const ResolvedAttention resolved, ResolveSelectable(attention, {}));
  options.defaults.attention = resolved.options;
  options.defaults.selection = resolved.selection;
  options.measures_profile = !flags.IsGiven("profile");
  if (flags.IsGiven("profile") && flags.Text("profile") != "none") {
    LK_ASSIGN_OR_RETURN(const std::string text,
                        ReadTextFile(flags.Text("profile"), kMaxProfileBytes));
    LK_ASSIGN_OR_RETURN(options.engine.profile, ParseProfile(text, flags.Text("profile")));
  }
  LK_RETURN_IF_ERROR(
      flags.ReadInt("max-new-tokens", {1, 1 << 24}, options.defaults.max_new_tokens));
  LK_ASSIGN_OR_RETURN(options.defaults.draft, ReadDraft(flags, options.engine));
  LK_ASSIGN_OR_RETURN(options.network.openai.tool_format, ReadToolFormat(flags));
  if (flags.IsGiven("chat-template")) {
    LK_ASSIGN_OR_RETURN(options.chat_templates, ReadChatTemplate(flags.Text("chat-template")));
  }
  // A port that is taken is reported before the long load, not after it.
  LK_RETURN_IF_ERROR(CheckCanListen(options.network.host, options.network.port));
  return options;
}

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
                      stats.n_threads == 1 ? " thread (" : " threads (", stats.instruction_set,
                      ")");
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
    while (absl::Now() < end && !server.is_draining() && engine.Health().ok() &&
           !WaitForStopSignal(kDrainPoll)) {
      if (TakeHangUp()) RunContained([&] { ReadCredentialsAgain(options); });
    }
  };
  serve_until(absl::InfiniteFuture());
  if (options.drain_delay > absl::ZeroDuration() && !server.is_draining() && engine.Health().ok()) {
    server.AnnounceDrain();
    Say(options, absl::StrCat("a drain begins in ", absl::FormatDuration(options.drain_delay)));
    serve_until(absl::Now() + options.drain_delay);
  }
  Say(options, absl::StrCat("draining: admitted requests have ",
                            absl::FormatDuration(options.grace), " to finish"));
  const bool drained = server.Shutdown(absl::Now() + options.grace,
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
  const absl::Time start = absl::Now();
  FillStandardFiles();
  IgnoreBrokenPipes();
  BlockStopSignals();
  BlockHangUp();
  LineLog log(STDERR_FILENO);
  LK_ASSIGN_OR_RETURN(ServeOptions options, ReadOptions(flags, log));
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
  SayReady(options, name, *server, absl::Now() - start);
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
  command.spec.groups = {{"Network", kNetworkFlags},
                         {"Traces", kTraceFlags},
                         {"Credentials (read again when the files change)", CredentialFlags()},
                         {"HTTP APIs", kHttpFlags},
                         {"Model", ModelFlags()},
                         {"Conversations", kChatFlags},
                         {"Engine", EngineFlags()},
                         {"Capacity", ServingFlags()},
                         {"Calibration of the model", CalibrationFlags()},
                         {"Defaults for requests that leave attention unset", AttentionFlags()},
                         {"Choosing a mechanism (--attention auto)", kSelectionFlags},
                         {"Defaults for requests that leave sampling unset", SamplingFlags()},
                         {"Defaults for requests that leave their length unset", kDefaultFlags},
                         {"Default for requests that leave drafts unset", DraftFlags()},
                         {"General", GeneralFlags()}};
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
