#ifndef LOWKEY_SERVER_GRPC_SERVER_H_
#define LOWKEY_SERVER_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/auth/credentials.h"
#include "server/grpc/connection/call_guard.h"
#include "server/grpc/generation_service.h"
#include "server/grpc/info_services.h"
#include "server/request_log.h"
#include "server/text_service.h"

namespace lowkey {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  int port = 50051;  // 0: a free port
  Credentials credentials = {};
  // Allows an address that other machines can reach without credentials.
  bool is_insecure_allowed = false;
  // A stream is cancelled when 256 tokens have waited this long for its reader.
  absl::Duration stall_timeout = absl::Seconds(60);
  RequestLog* log = nullptr;  // must outlive the server; null: no log
};

// Serves our services, grpc.health.v1 and reflection on one port; credentials guard all but health.
// Health is SERVING from the start, and the service's metrics show that state.
class GrpcServer {
 public:
  // FAILED_PRECONDITION: the host is not loopback, the credentials do not guard it and
  // is_insecure_allowed is false; nothing is opened then. INVALID_ARGUMENT for an invalid host or
  // port.
  static absl::Status CheckOptions(const GrpcServerOptions& options);

  // Binds and serves; `service` must outlive the server. Errors: those of CheckOptions and
  // CheckCanListen.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(TextService& service,
                                                           const GrpcServerOptions& options);

  ~GrpcServer();  // the same as Shutdown without a grace period
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Health is NOT_SERVING and new generations and scorings are refused with UNAVAILABLE from then
  // on. Returns at once. Admin.Drain calls this. Thread-safe.
  void BeginDrain();
  bool is_draining() const { return is_draining_; }

  // Calls BeginDrain. Admitted calls may finish, and their readers read them, until `deadline` or
  // until `is_cut_short` (asked every 20 ms or so) returns true; then they end with UNAVAILABLE.
  // Returns when no call is left: true if all finished.
  bool Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short = Never);

  int port() const { return port_; }
  std::string address() const;

 private:
  GrpcServer(TextService& service, const GrpcServerOptions& options);

  static bool Never() { return false; }

  void SetServing(bool serving);
  // Counts and logs a call that the credentials refused.
  void OnRefused(std::string_view method, const absl::Status& status) const;

  TextService& service_;
  const std::string host_;
  const CallGuard guard_;
  RequestLog* const log_;
  GenerationService generation_;
  ModelsService models_;
  AdminService admin_;
  absl::Mutex mutex_;
  std::unique_ptr<grpc::Server> server_;  // guarded by mutex_ until Start has returned
  std::atomic<bool> is_draining_{false};
  int port_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_SERVER_H_
