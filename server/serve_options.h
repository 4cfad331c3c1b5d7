#ifndef LOWKEY_SERVER_SERVE_OPTIONS_H_
#define LOWKEY_SERVER_SERVE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/runtime/engine.h"
#include "server/config/flags.h"
#include "server/front/server.h"
#include "server/log/line_log.h"
#include "server/request/request.h"
#include "server/trace/otlp_exporter.h"
#include "tokenizer/chat/template_files.h"

namespace lowkey {

// The options of `lowkey serve`, as its flags say.
struct ServeOptions {
  LineLog* log = nullptr;  // takes every line for standard error while serving
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
  bool measures_profile = false;  // measures rates in the background, as no profile was given
};

// Returns the flags of `lowkey serve` in groups, as its help shows them.
std::vector<FlagGroup> ServeFlags();

// Returns the options that the flags ask for; `log` must outlive them. INVALID_ARGUMENT naming the
// flag; also the errors of the files that flags name, and of an address that cannot be listened on.
absl::StatusOr<ServeOptions> ReadServeOptions(const FlagValues& flags, LineLog& log);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_SERVE_OPTIONS_H_
