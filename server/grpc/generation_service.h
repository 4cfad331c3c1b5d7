#ifndef LOWKEY_SERVER_GRPC_GENERATION_SERVICE_H_
#define LOWKEY_SERVER_GRPC_GENERATION_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/time/time.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "server/grpc/calls.h"
#include "server/grpc/connection/call_guard.h"
#include "server/grpc/live_calls.h"
#include "server/request_log.h"
#include "server/text_service.h"

namespace lowkey {

// lowkey.v1.Generation over a TextService. A call's cancellation, its client's disconnection and
// its deadline reach the engine.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  // All must outlive the gRPC server; log may be null.
  GenerationService(TextService& service, const CallGuard& guard, RequestLog* log,
                    absl::Duration stall_timeout)
      : service_(service), guard_(guard), log_(log), stall_timeout_(stall_timeout) {}

  // Waits until every admitted generation and scoring is answered, at most until `deadline`;
  // whether so.
  bool AwaitIdle(absl::Time deadline) { return live_calls_->AwaitNone(deadline); }

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* request,
                                     v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<v1::GenerateEvent>* GenerateStream(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context,
                                  const v1::ScoreRequest* request,
                                  v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  CallContext ContextOf(const grpc::CallbackServerContext& context);

  TextService& service_;
  const CallGuard& guard_;
  RequestLog* const log_;
  const absl::Duration stall_timeout_;
  const std::shared_ptr<LiveCalls> live_calls_ = std::make_shared<LiveCalls>();
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_GENERATION_SERVICE_H_
