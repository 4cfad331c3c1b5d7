#include "server/front/server.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/machine.h"
#include "engine/base/status_macros.h"
#include "server/api/http/api_error.h"
#include "server/api/http/browser_guard.h"
#include "server/api/http/routes.h"
#include "server/api/http/with_fields.h"
#include "server/api/kserve/services.h"
#include "server/api/lowkey/services.h"
#include "server/api/openai/routes.h"
#include "server/api/page/data.h"
#include "server/api/page/page.h"
#include "server/front/call_guard.h"
#include "server/front/counted_exchange.h"
#include "server/front/front.h"
#include "server/front/logged_call.h"
#include "server/front/ops.h"
#include "server/log/request_log.h"
#include "server/net/address.h"
#include "server/rpc/call.h"
#include "server/rpc/health.h"
#include "server/rpc/metadata.h"
#include "server/rpc/reflection.h"
#include "server/text/text_service.h"

namespace lowkey {
namespace {

// The time for the last answers to leave, once the engine has nothing left to do.
constexpr absl::Duration kFlushTime = absl::Seconds(1);
// The longest time that clients are given to learn of a drain before new work is refused.
constexpr absl::Duration kNoticeTime = absl::Milliseconds(750);
constexpr absl::Duration kDrainStep = absl::Milliseconds(20);
constexpr absl::Duration kStallCheck = absl::Milliseconds(100);
// Requests whose messages are whole and that wait for a worker.
constexpr size_t kMaxWaiting = 1024;

// Most cores are the engine's.
int NumWorkers() { return std::max(2, AvailableCores() / 8); }

bool IsCall(const HttpHead& head) {
  return head.method == "POST" && head.is_http2 &&
         IsRpcContentType(head.One("content-type").value_or(""));
}

BrowserRules RulesOf(const ServerOptions& options) {
  BrowserRules rules = options.browsers;
  rules.checks_host = !options.credentials.IsGuarded() && IsLoopback(options.host);
  return rules;
}

class RpcRefusal final : public HttpHandler {
 public:
  RpcRefusal(HttpExchange& exchange, absl::Status status)
      : exchange_(exchange), status_(std::move(status)) {}

  void OnHead() override { RefuseRpc(exchange_, status_); }
  void OnBody(std::string_view) override {}
  void OnBodyEnd() override {}

 private:
  HttpExchange& exchange_;
  const absl::Status status_;
};

}  // namespace

absl::Status Server::CheckOptions(const ServerOptions& options) {
  if (options.host.empty()) {
    return absl::InvalidArgumentError("host: empty, expected an address such as 127.0.0.1");
  }
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port: ", options.port, ", expected 0..65535"));
  }
  if (options.is_insecure_allowed || options.credentials.IsGuarded() || IsLoopback(options.host)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "host: ", options.host,
      " can be reached from other machines: expected --tls-cert and --tls-key, and --tokens or "
      "--tls-client-ca. Add --insecure to serve there all the same, or leave --host at "
      "127.0.0.1. In a container, mount the files and name them: -e LOWKEY_TOKENS=FILE -e "
      "LOWKEY_TLS_CERT=FILE -e LOWKEY_TLS_KEY=FILE; or say -e LOWKEY_INSECURE=true where something "
      "else guards the port"));
}

class Server::Impl final : private Router {
 public:
  Impl(TextService& service, const ServerOptions& options);
  ~Impl();

  absl::Status Start();
  void BeginDrain();
  void AnnounceDrain();
  bool is_draining() const { return is_draining_; }
  bool Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short);
  int port() const { return front_->port(); }
  std::string address() const { return JoinAddress(options_.host, port()); }

 private:
  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange, EventLoop& loop,
                                           const Peer& peer) const override;
  // Makes the handler without counting its answer.
  std::unique_ptr<HttpHandler> Route(HttpExchange& exchange, EventLoop& loop,
                                     const Peer& peer) const;
  // Makes the handler of a request that a browser may have sent.
  std::unique_ptr<HttpHandler> RouteWeb(HttpExchange& exchange, EventLoop& loop, const Peer& peer,
                                        const CallId& id) const;
  // Makes the handler of a request whose origin and host are in order.
  std::unique_ptr<HttpHandler> MakeAnswer(HttpExchange& exchange, EventLoop& loop, const Peer& peer,
                                          const CallId& id) const;
  // Makes the handler of a request that the credentials have let in.
  std::unique_ptr<HttpHandler> MakeAllowed(const RoutedRequest& request) const;
  void SetState(ServingState state);
  // Counts and logs a call that the credentials refused. `tenant` is empty for an unknown caller.
  void OnRefusedCall(std::string_view method, const std::string& tenant, const absl::Status& status,
                     const CallId& id = {}) const;
  void CountRefusal(NetworkRefusal reason) const;
  void AddServices();
  // Has the metrics show what the front does.
  void ShowNetwork();
  void AddRoutes();
  bool IsApiPath(std::string_view path) const;
  std::unique_ptr<HttpHandler> MakeRefusal(HttpExchange& exchange, const std::string& tenant,
                                           const absl::Status& status, const CallId& id) const;

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
  // Workers and the engine post to the front's loops, and so end before the front does (~Impl).
  std::unique_ptr<Front> front_;
  std::unique_ptr<WorkerPool> pool_;
  const RpcWorkers workers_;
  const GenerationContext generation_;
  const InferContext inference_{generation_};
  const PageData page_data_;
  std::unique_ptr<RpcHealth> health_;
  absl::Mutex mutex_;  // of BeginDrain
  std::atomic<bool> is_draining_{false}, is_drain_announced_{false};
};

Server::Impl::Impl(TextService& service, const ServerOptions& options)
    : service_(service),
      options_(options),
      guard_(options.credentials.tokens),
      browsers_(RulesOf(options)),
      budgets_{.bodies = ByteBudget(options.body_bytes)},
      rpc_{registry_, [this](NetworkRefusal reason) { CountRefusal(reason); }},
      http_{event_streams_, rpc_.on_refusal},
      pool_(std::make_unique<WorkerPool>(NumWorkers(), kMaxWaiting)),
      workers_{*pool_, rpc_.on_refusal},
      generation_{service,
                  workers_,
                  options.deliveries != nullptr ? *options.deliveries : own_deliveries_,
                  std::make_shared<LiveCalls>(),
                  std::make_shared<LiveCalls>(),
                  std::make_shared<PausedCalls>(),
                  options.log,
                  options.stall_timeout,
                  options.stream_interval},
      page_data_(service, workers_, options.is_measuring) {}

absl::Status Server::Impl::Start() {
  AddServices();
  LK_RETURN_IF_ERROR(registry_.CheckComplete());
  AddRoutes();
  FrontOptions front;
  front.host = options_.host;
  front.port = options_.port;
  front.tls = options_.credentials.tls;
  front.n_loops = options_.n_network_threads;
  front.max_connections = options_.max_connections;
  front.limits = options_.limits;
  front.on_refusal = rpc_.on_refusal;
  if (Metrics* const metrics = service_.options().metrics; metrics != nullptr) {
    front.on_loop_delay = [metrics](absl::Duration delay) { metrics->ObserveLoopDelay(delay); };
  }
  // Calls may come from here on.
  absl::MutexLock lock(&mutex_);
  LK_ASSIGN_OR_RETURN(front_, Front::Start(*this, budgets_, front));
  ShowNetwork();
  EventLoop& loop = front_->first_loop();
  loop.Post([&loop, paused = generation_.paused_calls, timeout = options_.stall_timeout] {
    loop.Every(kStallCheck,
               [paused, timeout](absl::Time now) { paused->EndStalled(now - timeout); });
  });
  SetState(ServingState::kServing);
  return absl::OkStatus();
}

void Server::Impl::AddServices() {
  AddGenerationService(registry_, generation_);
  AddModelsService(registry_, generation_);
  AddAdminService(
      registry_, generation_,
      {.begin_drain = [this] { BeginDrain(); }, .may_anyone_drain = guard_.asks_for_tokens()});
  AddInferenceService(registry_, inference_,
                      [this] { return !is_draining_ && !is_drain_announced_; });
  health_ = std::make_unique<RpcHealth>(registry_);
  AddReflection(registry_);
}

// Every path here needs a row in call_guard.cc's table of rights.
void Server::Impl::AddRoutes() {
  AddOpenAiRoutes(routes_, generation_, http_, options_.openai);
  routes_.Add("GET", "/",
              [](const RoutedRequest& request) { return MakePageHandler(request.exchange); });
  page_data_.AddRoutes(routes_, http_);
}

// Whether errors on this path are objects rather than plain text.
bool Server::Impl::IsApiPath(std::string_view path) const {
  return path.starts_with("/v1/") || routes_.Has(path);
}

std::unique_ptr<HttpHandler> Server::Impl::MakeRefusal(HttpExchange& exchange,
                                                       const std::string& tenant,
                                                       const absl::Status& status,
                                                       const CallId& id) const {
  const std::string& path = exchange.head().path;
  OnRefusedCall(path, tenant, status, id);
  if (IsCall(exchange.head())) return std::make_unique<RpcRefusal>(exchange, status);
  if (IsApiPath(path)) return MakeApiRefusal(exchange, status);
  const std::string text = absl::StrCat(status.message(), "\n");
  if (!absl::IsUnauthenticated(status)) return MakeTextAnswer(exchange, 403, text);
  return MakeTextAnswer(exchange, 401, text, {{"www-authenticate", "Bearer"}});
}

std::unique_ptr<HttpHandler> Server::Impl::MakeHandler(HttpExchange& exchange, EventLoop& loop,
                                                       const Peer& peer) const {
  Metrics* const metrics = service_.options().metrics;
  if (metrics == nullptr) return Route(exchange, loop, peer);
  return MakeCounted(
      exchange,
      [metrics](std::string_view api, std::string_view code) {
        metrics->CountHttpRequest(api, code);
      },
      [&](HttpExchange& counted) { return Route(counted, loop, peer); });
}

std::unique_ptr<HttpHandler> Server::Impl::Route(HttpExchange& exchange, EventLoop& loop,
                                                 const Peer& peer) const {
  const HttpHead& head = exchange.head();
  // Browsers cannot make calls of gRPC, and get nothing else on their paths.
  if (IsCall(head) || registry_.Find(head.path) != nullptr) {
    return MakeAnswer(exchange, loop, peer, {});
  }
  if (!IsApiPath(head.path)) return RouteWeb(exchange, loop, peer, {});
  const CallId id = TakeCallId(head.One("x-request-id"));
  return MakeWithFields(exchange, {{"x-request-id", id.text}},
                        [&](HttpExchange& answered) { return RouteWeb(answered, loop, peer, id); });
}

std::unique_ptr<HttpHandler> Server::Impl::RouteWeb(HttpExchange& exchange, EventLoop& loop,
                                                    const Peer& peer, const CallId& id) const {
  const absl::Status status = CheckBrowser(exchange.head(), browsers_);
  if (!status.ok()) return MakeRefusal(exchange, "", status, id);
  return MakeForBrowser(exchange, browsers_, [&](HttpExchange& answered) {
    return MakeAnswer(answered, loop, peer, id);
  });
}

std::unique_ptr<HttpHandler> Server::Impl::MakeAnswer(HttpExchange& exchange, EventLoop& loop,
                                                      const Peer& peer, const CallId& id) const {
  const HttpHead& head = exchange.head();
  const std::optional<Right> right = RightFor(head.path);
  std::string bearer;
  absl::StatusOr<Tenant> tenant = Tenant();
  if (right.has_value()) tenant = guard_.Check(*right, head.All("authorization"), &bearer);
  if (tenant.ok() && (right.has_value() || !guard_.asks_for_tokens())) exchange.Trust();
  const bool is_known = IsPage(head.path) || routes_.Has(head.path);
  // A bearer of some token learns that a path is unknown, whatever the token's rights.
  const bool is_refused =
      !tenant.ok() && (IsCall(head) || is_known || !absl::IsPermissionDenied(tenant.status()));
  if (is_refused) return MakeRefusal(exchange, bearer, tenant.status(), id);
  const RoutedRequest request{exchange, loop, peer, tenant.ok() ? *std::move(tenant) : Tenant(),
                              id};
  if (options_.log == nullptr || !right.has_value() || IsLeftOutOfLog(head.path)) {
    return MakeAllowed(request);
  }
  return MakeLogged(
      exchange, *options_.log, bearer, id.text,
      [&](HttpExchange& logged, std::shared_ptr<bool> is_logged) {
        return MakeAllowed({logged, loop, peer, request.tenant, id, std::move(is_logged)});
      });
}

std::unique_ptr<HttpHandler> Server::Impl::MakeAllowed(const RoutedRequest& request) const {
  HttpExchange& exchange = request.exchange;
  const HttpHead& head = exchange.head();
  if (IsCall(head)) {
    return std::make_unique<RpcCall>(rpc_, exchange, request.loop, ContextOf(request));
  }
  if (const Metrics* metrics = service_.options().metrics; metrics != nullptr) {
    const OpsPages pages{*metrics, [this] { return front_->can_accept(); }};
    if (auto page = pages.MakeHandler(exchange); page != nullptr) return page;
  }
  if (auto handler = routes_.MakeHandler(request); handler != nullptr) return handler;
  if (IsApiPath(head.path)) return MakeApiRefusal(exchange, UnknownApiPath(head.path));
  if (registry_.Find(head.path) == nullptr) return MakeTextAnswer(exchange, 404, "not found\n");
  return MakeTextAnswer(exchange, 415,
                        "expected POST over HTTP/2 with content-type application/grpc\n");
}

void Server::Impl::OnRefusedCall(std::string_view method, const std::string& tenant,
                                 const absl::Status& status, const CallId& id) const {
  if (Metrics* metrics = service_.options().metrics) metrics->CountRefusal(status.code());
  if (options_.log == nullptr) return;
  RunContained([&] {
    options_.log->WriteWithoutSpan(
        {.method = std::string(method), .tenant = tenant, .status = status, .request_id = id.text});
  });
}

void Server::Impl::CountRefusal(NetworkRefusal reason) const {
  if (Metrics* metrics = service_.options().metrics) metrics->CountNetworkRefusal(reason);
}

void Server::Impl::ShowNetwork() {
  Metrics* const metrics = service_.options().metrics;
  if (metrics == nullptr) return;
  metrics->WatchNetwork([this] {
    NetworkStats stats = front_->Stats();
    stats.n_waiting_work = static_cast<int64_t>(pool_->n_waiting());
    return stats;
  });
}

void Server::Impl::SetState(ServingState state) {
  health_->SetServing(state == ServingState::kServing);
  if (Metrics* metrics = service_.options().metrics) metrics->SetState(state);
}

void Server::Impl::BeginDrain() {
  absl::MutexLock lock(&mutex_);
  if (is_draining_) return;
  // Whoever reads that the server drains is refused.
  service_.engine().Drain(absl::InfinitePast());
  SetState(ServingState::kDraining);
  is_draining_ = true;
}

void Server::Impl::AnnounceDrain() {
  is_drain_announced_ = true;
  SetState(ServingState::kDraining);
}

bool Server::Impl::Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short) {
  front_->BeginDrain();
  if (!is_draining_) {
    // Who asked before knowing of the drain is served.
    front_->AwaitTold(std::min(deadline, SteadyNow() + kNoticeTime));
    pool_->AwaitIdle(std::min(deadline, SteadyNow() + kNoticeTime));
    // A request that a worker has read goes over its call's loop to the worker that submits it.
    front_->PassLoops();
    pool_->AwaitIdle(std::min(deadline, SteadyNow() + kNoticeTime));
  }
  // A client whose connection ends connects again at once, and must not reach this server, which
  // refuses everything from here on. Those who came meanwhile are told too.
  front_->StopAccepting();
  front_->BeginDrain();
  BeginDrain();
  bool is_idle = false;
  do {
    const absl::Time until = std::min(deadline, SteadyNow() + kDrainStep);
    is_idle = service_.engine().Drain(until) && generation_.live_calls->AwaitNone(until);
  } while (!is_idle && SteadyNow() < deadline && !is_cut_short());
  service_.StopTokenizing();
  if (!is_idle) {
    service_.engine().EndAll(absl::UnavailableError(
        "the server is stopping, and the grace period for admitted requests is over"));
    service_.engine().Drain(absl::InfiniteFuture());  // at most a step
  }
  health_->Shutdown();
  inference_.streams->Stop();
  front_->AwaitIdle(SteadyNow() + kFlushTime);
  front_->Close();
  return is_idle;
}

// The calls' threads end in this order: connections are closed, which cancels their requests; the
// workers submit or refuse what waits; the engine lets go of its requests; the loops stop.
Server::Impl::~Impl() {
  if (front_ == nullptr) return;
  if (Metrics* const metrics = service_.options().metrics) metrics->WatchNetwork(nullptr);
  front_->Close();
  pool_.reset();
  generation_.engine_calls->AwaitNone(absl::InfiniteFuture());
  front_.reset();
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() = default;

absl::StatusOr<std::unique_ptr<Server>> Server::Start(TextService& service,
                                                      const ServerOptions& options) {
  LK_RETURN_IF_ERROR(CheckOptions(options));
  auto impl = std::make_unique<Impl>(service, options);
  LK_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::BeginDrain() { impl_->BeginDrain(); }

void Server::AnnounceDrain() { impl_->AnnounceDrain(); }

bool Server::is_draining() const { return impl_->is_draining(); }

bool Server::Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short) {
  return impl_->Shutdown(deadline, is_cut_short);
}

int Server::port() const { return impl_->port(); }

std::string Server::address() const { return impl_->address(); }

}  // namespace lowkey
