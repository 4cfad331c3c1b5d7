#include "server/grpc/server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/grpc/connection/address.h"
#include "server/grpc/connection/server_credentials.h"
#include "server/grpc/parse_errors.h"
#include "server/metrics/metrics.h"

namespace lowkey {
namespace {

// The time for the last answers to leave, once the engine has nothing left to do.
constexpr absl::Duration kFlushTime = absl::Seconds(1);
constexpr absl::Duration kDrainStep = absl::Milliseconds(20);

// Sets process-wide switches of gRPC before its first server.
void PrepareGrpcOnce() {
  static const bool prepared = [] {
    // Our errors say the same as gRPC's log; GRPC_VERBOSITY still brings the log back.
    if (std::getenv("GRPC_VERBOSITY") == nullptr) {
      gpr_set_log_function([](gpr_log_func_args*) {});
    }
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)prepared;
}

}  // namespace

GrpcServer::GrpcServer(TextService& service, const GrpcServerOptions& options)
    : service_(service),
      host_(options.host),
      guard_(options.credentials.tokens),
      log_(options.log),
      generation_(service, guard_, options.log, options.stall_timeout),
      models_(service),
      admin_(service, {.begin_drain = [this] { BeginDrain(); },
                       .may_anyone_drain = guard_.asks_for_tokens()}) {}

absl::Status GrpcServer::CheckOptions(const GrpcServerOptions& options) {
  if (options.host.empty()) {
    return absl::InvalidArgumentError("host: empty, expected an address such as 127.0.0.1");
  }
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("port: ", options.port, ", expected 0..65535"));
  }
  if (options.is_insecure_allowed || options.credentials.IsGuarded() || IsLoopback(options.host)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "host ", options.host,
      " can be reached from other machines: expected --tls-cert and --tls-key, and --tokens or "
      "--tls-client-ca. Add --insecure to serve there all the same, or leave --host at "
      "127.0.0.1. In a container, mount the files and name them: -e LOWKEY_TOKENS=FILE -e "
      "LOWKEY_TLS_CERT=FILE -e LOWKEY_TLS_KEY=FILE; or say -e LOWKEY_INSECURE=true where something "
      "else guards the port"));
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(TextService& service,
                                                              const GrpcServerOptions& options) {
  LK_RETURN_IF_ERROR(CheckOptions(options));
  LK_RETURN_IF_ERROR(CheckCanListen(options.host, options.port));
  PrepareGrpcOnce();
  std::unique_ptr<GrpcServer> result(new GrpcServer(service, options));
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  // Otherwise two servers on one port would each get some of the requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  const std::string address = JoinAddress(options.host, options.port);
  builder.AddListeningPort(address,
                           MakeServerCredentials(options.credentials,
                                                 [server = result.get()](auto... refused) {
                                                   server->OnRefused(refused...);
                                                 }),
                           &result->port_);
  builder.RegisterService(&result->generation_);
  builder.RegisterService(&result->models_);
  builder.RegisterService(&result->admin_);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(ExplainParseErrors());
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  // Calls may come from here on.
  absl::MutexLock lock(&result->mutex_);
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr || result->port_ <= 0) {
    return absl::FailedPreconditionError(absl::StrCat(address, ": cannot listen"));
  }
  result->SetServing(true);
  return result;
}

void GrpcServer::OnRefused(std::string_view method, const absl::Status& status) const {
  if (Metrics* metrics = service_.options().metrics; metrics != nullptr) {
    metrics->CountRefusal(status.code());
  }
  if (log_ != nullptr) {
    log_->Write({std::string(method), "", status, absl::ZeroDuration(), std::nullopt});
  }
}

void GrpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  for (const char* name : {"", "lowkey.v1.Generation", "lowkey.v1.Models", "lowkey.v1.Admin"}) {
    health->SetServingStatus(name, serving);
  }
  if (Metrics* metrics = service_.options().metrics; metrics != nullptr) {
    metrics->SetState(serving ? ServingState::kServing : ServingState::kDraining);
  }
}

void GrpcServer::BeginDrain() {
  absl::MutexLock lock(&mutex_);
  if (is_draining_) return;
  SetServing(false);
  service_.engine().Drain(absl::InfinitePast());
  is_draining_ = true;
}

std::string GrpcServer::address() const { return JoinAddress(host_, port_); }

bool GrpcServer::Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short) {
  BeginDrain();
  bool is_idle = false;
  do {
    const absl::Time until = std::min(deadline, absl::Now() + kDrainStep);
    is_idle = service_.engine().Drain(until) && generation_.AwaitIdle(until);
  } while (!is_idle && absl::Now() < deadline && !is_cut_short());
  service_.StopTokenizing();
  if (!is_idle) {
    service_.engine().EndAll(absl::UnavailableError(
        "the server is stopping, and the grace period for admitted requests is over"));
    service_.engine().Drain(absl::InfiniteFuture());  // at most a step
  }
  // gRPC waits for other calls too, such as a Watch of the health, which never ends by itself.
  server_->Shutdown(absl::ToChronoTime(absl::Now() + kFlushTime));
  server_->Wait();
  return is_idle;
}

GrpcServer::~GrpcServer() {
  if (server_ == nullptr) return;
  server_->Shutdown(absl::ToChronoTime(absl::Now()));
  server_->Wait();
}

}  // namespace lowkey
