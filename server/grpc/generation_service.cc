#include "server/grpc/generation_service.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "server/grpc/convert/request.h"
#include "server/grpc/convert/status.h"
#include "server/grpc/convert_response.h"

namespace lowkey {
namespace {

// Gives the call's tenant, deadline and cancellation to its request.
template <typename Request>
absl::Status SetCaller(const CallContext& call, const grpc::CallbackServerContext& context,
                       Request& request) {
  LK_RETURN_IF_ERROR(call.tenant.status());
  request.tenant = *call.tenant;
  request.deadline = call.deadline;
  request.is_cancelled = [&context] { return context.IsCancelled(); };
  return absl::OkStatus();
}

absl::Status RunTokenize(const CallContext& call, const grpc::CallbackServerContext& context,
                         const v1::TokenizeRequest& proto, v1::TokenizeResponse& response) {
  LK_ASSIGN_OR_RETURN(TokenizeRequest request, FromProto(proto));
  LK_RETURN_IF_ERROR(SetCaller(call, context, request));
  LK_ASSIGN_OR_RETURN(TokenizeResult result, call.service.Tokenize(request));
  response.set_rendered_text(std::move(result.rendered_text));
  response.mutable_token_ids()->Assign(result.tokens.begin(), result.tokens.end());
  response.mutable_pieces()->Reserve(static_cast<int>(result.tokens.size()));
  for (int32_t token : result.tokens) {
    LK_ASSIGN_OR_RETURN(const std::string_view piece, call.service.tokenizer().IdToPiece(token));
    response.add_pieces(std::string(piece));
  }
  return absl::OkStatus();
}

absl::Status RunDetokenize(const CallContext& call, const grpc::CallbackServerContext& context,
                           const v1::DetokenizeRequest& proto, v1::DetokenizeResponse& response) {
  DetokenizeRequest request = FromProto(proto);
  LK_RETURN_IF_ERROR(SetCaller(call, context, request));
  LK_ASSIGN_OR_RETURN(*response.mutable_text(), call.service.Detokenize(request));
  return absl::OkStatus();
}

}  // namespace

CallContext GenerationService::ContextOf(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range("authorization");
  std::vector<std::string_view> authorization;
  for (auto it = begin; it != end; ++it) {
    authorization.emplace_back(it->second.data(), it->second.size());
  }
  // The guard checked the call already, but could not hand the tenant on. The token may even be
  // gone by now.
  return {service_,       live_calls_,        log_, guard_.Check(Right::kGenerate, authorization),
          stall_timeout_, DeadlineOf(context)};
}

grpc::ServerUnaryReactor* GenerationService::Generate(grpc::CallbackServerContext* context,
                                                      const v1::GenerateRequest* request,
                                                      v1::GenerateResponse* response) {
  return UnaryCall::Start(ContextOf(*context), *request, response);
}

grpc::ServerWriteReactor<v1::GenerateEvent>* GenerationService::GenerateStream(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return StreamCall::Start(ContextOf(*context), *request);
}

grpc::ServerUnaryReactor* GenerationService::Score(grpc::CallbackServerContext* context,
                                                   const v1::ScoreRequest* request,
                                                   v1::ScoreResponse* response) {
  return UnaryCall::Start(ContextOf(*context), *request, response);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  return Answer(context, RunTokenize(ContextOf(*context), *context, *request, *response));
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  return Answer(context, RunDetokenize(ContextOf(*context), *context, *request, *response));
}

}  // namespace lowkey
