#ifndef LOWKEY_SERVER_FRONT_SERVER_H_
#define LOWKEY_SERVER_FRONT_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/api/http/browser_guard.h"
#include "server/api/http/routes.h"
#include "server/api/kserve/services.h"
#include "server/api/lowkey/services.h"
#include "server/api/openai/options.h"
#include "server/api/page/data.h"
#include "server/auth/credentials.h"
#include "server/front/call_guard.h"
#include "server/front/front.h"
#include "server/front/ops.h"
#include "server/request_log.h"
#include "server/rpc/call.h"
#include "server/rpc/health.h"
#include "server/text_service.h"

namespace lowkey {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 50051;  // 0: a free port
  Credentials credentials = {};
  // Allows an address that other machines can reach without credentials.
  bool is_insecure_allowed = false;
  // A stream is cancelled when 256 tokens have waited this long for its reader.
  absl::Duration stall_timeout = absl::Seconds(60);
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
  // Whether this machine's rates are being measured for the engine; null: they are not.
  std::function<bool()> is_measuring = nullptr;
};

// Serves lowkey.v1, inference.GRPCInferenceService, grpc.health.v1, reflection, the HTTP APIs, the page
// and the pages of OpsPages on one port; credentials guard all but health, ServerLive, ServerReady,
// `/`, /health, /ready and /version. Health is SERVING from the start, and the service's metrics show
// that state.
class Server final : private Router {
 public:
  // FAILED_PRECONDITION: the host is not loopback, the credentials do not guard it and
  // is_insecure_allowed is false; nothing is opened then. INVALID_ARGUMENT for an invalid host or
  // port.
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
  bool is_draining() const { return is_draining_; }

  // Calls BeginDrain. Admitted calls may finish, and their readers read them, until `deadline` or
  // until `is_cut_short` (asked every 20 ms or so) returns true; then they end with UNAVAILABLE.
  // Returns when no call is left: true if all finished.
  bool Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short = Never);

  int port() const { return front_->port(); }
  std::string address() const;

 private:
  Server(TextService& service, const ServerOptions& options);

  static bool Never() { return false; }

  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange, EventLoop& loop,
                                           const Peer& peer) const override;
  // Makes the handler without counting its answer.
  std::unique_ptr<HttpHandler> Route(HttpExchange& exchange, EventLoop& loop,
                                     const Peer& peer) const;
  // Makes the handler of a request whose origin and host are in order.
  std::unique_ptr<HttpHandler> MakeAnswer(HttpExchange& exchange, EventLoop& loop,
                                          const Peer& peer) const;
  std::unique_ptr<HttpHandler> MakeCall(HttpExchange& exchange, EventLoop& loop, const Peer& peer,
                                        absl::StatusOr<Tenant> tenant) const;
  void SetState(ServingState state);
  // Counts and logs a call that the credentials refused.
  void OnRefusedCall(std::string_view method, const absl::Status& status) const;
  void CountRefusal(NetworkRefusal reason) const;
  void AddServices();
  // Has the metrics show what the front does.
  void ShowNetwork();
  void AddRoutes();
  bool IsApiPath(std::string_view path) const;
  std::unique_ptr<HttpHandler> MakeRefusal(HttpExchange& exchange,
                                           const absl::Status& status) const;

  TextService& service_;
  const ServerOptions options_;
  const CallGuard guard_;
  const BrowserRules browsers_;
  Deliveries own_deliveries_{/*gathers=*/false};
  HttpBudgets budgets_;
  RpcRegistry registry_;
  RpcServices rpc_;
  EventStreams event_streams_;
  HttpServices http_;
  HttpRoutes routes_;
  // Workers and the engine post to the front's loops, and so end before the front does (~Server).
  std::unique_ptr<Front> front_;
  std::unique_ptr<WorkerPool> pool_;
  const RpcWorkers workers_;
  const GenerationContext generation_;
  const InferContext inference_{generation_};
  const PageData page_data_;
  std::unique_ptr<RpcHealth> health_;
  absl::Mutex mutex_;  // of BeginDrain
  std::atomic<bool> is_draining_{false};
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_SERVER_H_
