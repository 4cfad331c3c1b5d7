#include "server/serve_options.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/auth/credential_flags.h"
#include "server/config/calibration_flags.h"
#include "server/config/common_flags.h"
#include "server/config/profile.h"
#include "server/model_files/load_chat_templates.h"
#include "server/net/address.h"
#include "server/net/listening.h"
#include "server/version.h"

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
     "how long requests are still admitted after a signal while health and /ready say that "
     "the server drains, for balancers that ask them"},
    {"grace", "TIME", "30", "how long admitted requests may run on once a drain has begun"},
    {"stall-timeout", "TIME", "60", "end a stream that is not read for so long"},
    {"stream-interval", "N", "1",
     "send the tokens of a stream so many at a time, after the first, however long they take: "
     "fewer messages for proxies and readers that are slow"},
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
// Between the end of a stream that was not read and that of its connection.
constexpr absl::Duration kTimeToTell = absl::Seconds(10);
constexpr Flag kSelectionFlags[] = {
    {"profile", "FILE", "",
     "this machine's rates, as lowkey crossover --output wrote them; none: do without [measured "
     "once in the background, and kept in ~/.cache/lowkey]"},
};
constexpr Flag kDefaultFlags[] = {
    {"max-new-tokens", "N", "128",
     "tokens to generate; unless it is given, chats and responses of OpenAI's API take what the "
     "context leaves, and completions take 16 in any case"},
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

absl::StatusOr<SelectionProfile> ReadProfile(const std::string& path) {
  LK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxProfileBytes));
  return ParseProfile(text, path);
}

// Returns a number that another build of the program has not.
int64_t ProgramTime() {
  std::error_code error;
  const auto time = std::filesystem::last_write_time("/proc/self/exe", error);
  return error ? 0 : static_cast<int64_t>(time.time_since_epoch().count());
}

}  // namespace

absl::StatusOr<ServeOptions> ReadServeOptions(const FlagValues& flags, LineLog& log) {
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
  LK_RETURN_IF_ERROR(
      flags.ReadInt("stream-interval", {1, kMaxStreamInterval}, options.network.stream_interval));
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
    LK_ASSIGN_OR_RETURN(options.engine.profile,
                        Prefixed("--profile", ReadProfile(flags.Text("profile"))));
  }
  LK_RETURN_IF_ERROR(
      flags.ReadInt("max-new-tokens", {1, 1 << 24}, options.defaults.max_new_tokens));
  LK_ASSIGN_OR_RETURN(options.defaults.draft, ReadDraft(flags, options.engine));
  LK_ASSIGN_OR_RETURN(options.network.openai.tool_format, ReadToolFormat(flags));
  if (flags.IsGiven("chat-template")) {
    LK_ASSIGN_OR_RETURN(options.chat_templates,
                        Prefixed("--chat-template", ReadChatTemplate(flags.Text("chat-template"))));
  }
  // A port that is taken is reported before the long load, not after it.
  LK_RETURN_IF_ERROR(CheckCanListen(options.network.host, options.network.port));
  return options;
}

std::vector<FlagGroup> ServeFlags() {
  return {
      {"Network", kNetworkFlags},
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
      {"Defaults for requests that leave sampling unset (temperature in OpenAI's API: 1, unless "
       "--temperature is given)",
       SamplingFlags()},
      {"Defaults for requests that leave their length unset", kDefaultFlags},
      {"Default for requests that leave drafts unset", DraftFlags()},
      {"General", GeneralFlags()}};
}

}  // namespace lowkey
