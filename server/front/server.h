#ifndef LOWKEY_SERVER_FRONT_SERVER_H_
#define LOWKEY_SERVER_FRONT_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/http/browser_rules.h"
#include "server/api/openai/options.h"
#include "server/auth/credentials.h"
#include "server/front/connection_limits.h"

namespace lowkey {

class Deliveries;
class RequestLog;
class TextService;

// Far fewer than the tokens whose reader is waited for.
inline constexpr int kMaxStreamInterval = 128;

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 50051;  // 0: a free port
  Credentials credentials = {};
  // Allows an address that other machines can reach without credentials.
  bool is_insecure_allowed = false;
  // A stream is cancelled when 256 tokens have waited this long for its reader.
  absl::Duration stall_timeout = absl::Seconds(60);
  // Tokens of a stream that are sent together, after its first; at most kMaxStreamInterval.
  int stream_interval = 1;
  RequestLog* log = nullptr;  // must outlive the server; null: no log
  // The engine flushes it after its deliveries, and it must outlive the engine; null: results wake
  // their connection's thread one by one.
  Deliveries* deliveries = nullptr;
  int n_network_threads = 1;
  int max_connections = 1024;
  int64_t body_bytes = int64_t{64} << 20;  // of requests that come, or that wait to be read
  ConnectionLimits limits = {};
  OpenAiOptions openai = {};
  // Hosts are checked where nothing else guards a loopback address.
  BrowserRules browsers = {};
  // Returns whether this machine's rates are being measured for the engine; null: they are not.
  std::function<bool()> is_measuring = nullptr;
};

// Serves lowkey.v1, inference.GRPCInferenceService, grpc.health.v1, reflection, the HTTP APIs, the
// page and the pages of OpsPages on one port; credentials guard all but health, ServerLive,
// ServerReady, `/`, /health, /ready and /version. Health is SERVING from the start, and the
// service's metrics show that state.
class Server final {
 public:
  // INVALID_ARGUMENT for an invalid host or port, and for a host that is not loopback where the
  // credentials do not guard it and is_insecure_allowed is false.
  static absl::Status CheckOptions(const ServerOptions& options);

  // Binds and serves; `service` must outlive the server. Errors: those of
  // CheckOptions and Front::Start.
  static absl::StatusOr<std::unique_ptr<Server>> Start(TextService& service,
                                                       const ServerOptions& options);

  ~Server();  // the same as Shutdown without a grace period
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Health is NOT_SERVING and new generations and scorings are refused with UNAVAILABLE from then
  // on. Returns at once. Admin.Drain calls this. Thread-safe.
  void BeginDrain();
  bool is_draining() const;

  // Health and /ready say from then on that the server drains; it goes on as before. Returns at
  // once.
  void AnnounceDrain();

  // Tells the clients of the connections, serves what they asked before they knew of it, within 1.5
  // s, and calls BeginDrain. Admitted calls may finish, and their readers read them, until
  // `deadline` or until `is_cut_short` (asked every 20 ms or so) returns true; then they end with
  // UNAVAILABLE. Returns when no call is left: true if all finished.
  bool Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short = Never);

  int port() const;
  std::string address() const;

 private:
  class Impl;

  explicit Server(std::unique_ptr<Impl> impl);

  static bool Never() { return false; }

  const std::unique_ptr<Impl> impl_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_SERVER_H_
