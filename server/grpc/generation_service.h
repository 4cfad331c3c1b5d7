#ifndef LOWKEY_SERVER_GRPC_GENERATION_SERVICE_H_
#define LOWKEY_SERVER_GRPC_GENERATION_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "lowkey/v1/generation.grpc.pb.h"
#include "server/request_log.h"
#include "server/text_service.h"

namespace lowkey {

// lowkey.v1.Generation over a TextService. A call's cancellation, its client's disconnection and
// its deadline reach the engine.
class GenerationService final : public v1::Generation::CallbackService {
 public:
  // Both must outlive the gRPC server; log may be null.
  GenerationService(TextService& service, RequestLog* log) : service_(service), log_(log) {}

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
  TextService& service_;
  RequestLog* const log_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_GENERATION_SERVICE_H_
