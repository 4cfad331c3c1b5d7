#ifndef LOWKEY_SERVER_GRPC_SERVER_H_
#define LOWKEY_SERVER_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/grpc/generation_service.h"
#include "server/grpc/info_services.h"
#include "server/request_log.h"
#include "server/text_service.h"

namespace lowkey {

struct GrpcServerOptions {
  std::string host = "127.0.0.1";
  int port = 50051;  // 0: a free one
  // Serve on an address that other machines can reach, although nothing guards it yet.
  bool is_insecure_allowed = false;
  RequestLog* log = nullptr;  // must outlive the server; null: no log
};

// Our services, grpc.health.v1 and reflection on one port. Healthy from the start.
class GrpcServer {
 public:
  // FAILED_PRECONDITION: the host is not loopback and is_insecure_allowed is false, which is said
  // before anything is opened. INVALID_ARGUMENT for a host or port that is none.
  static absl::Status CheckOptions(const GrpcServerOptions& options);

  // Binds and serves; `service` must outlive the server. Errors: those of CheckOptions and
  // CheckCanListen.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(TextService& service,
                                                           const GrpcServerOptions& options);

  ~GrpcServer();  // as Shutdown without a grace period
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Health becomes NOT_SERVING at once; new generations are refused; what was admitted may finish
  // until `deadline`, or until `is_cut_short` (asked every 20 ms or so) says true, and is cancelled
  // then. Returns when no call is left: true if all finished.
  bool Shutdown(absl::Time deadline, absl::FunctionRef<bool()> is_cut_short = Never);

  int port() const { return port_; }
  std::string address() const;

 private:
  GrpcServer(TextService& service, const GrpcServerOptions& options);

  static bool Never() { return false; }

  void SetServing(bool serving);

  TextService& service_;
  const std::string host_;
  GenerationService generation_;
  ModelsService models_;
  AdminService admin_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_SERVER_H_
