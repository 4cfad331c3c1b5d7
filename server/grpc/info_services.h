#ifndef LOWKEY_SERVER_GRPC_INFO_SERVICES_H_
#define LOWKEY_SERVER_GRPC_INFO_SERVICES_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <utility>

#include "absl/time/time.h"
#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/text_service.h"

namespace lowkey {

// lowkey.v1.Models over a TextService, which must outlive the gRPC server.
class ModelsService final : public v1::Models::CallbackService {
 public:
  explicit ModelsService(const TextService& service) : service_(service) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::Model* response) override;

 private:
  const TextService& service_;
};

// lowkey.v1.Admin, likewise.
class AdminService final : public v1::Admin::CallbackService {
 public:
  struct Options {
    std::function<void()> begin_drain;  // returns at once; may be called more than once
    bool may_anyone_drain = false;      // not only callers on this machine
  };

  AdminService(const TextService& service, Options options)
      : service_(service), options_(std::move(options)) {}

  grpc::ServerUnaryReactor* Stats(grpc::CallbackServerContext* context,
                                  const v1::StatsRequest* request,
                                  v1::StatsResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override;

 private:
  const TextService& service_;
  const Options options_;
  const absl::Time start_ = absl::Now();
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_INFO_SERVICES_H_
