#include "server/grpc/generation_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/grpc/convert/request.h"
#include "server/grpc/convert/status.h"
#include "server/grpc/convert_response.h"

namespace lowkey {
namespace {

absl::StatusOr<TokenList> TokenizeText(const TextService& service,
                                       const v1::TokenizeRequest& request) {
  EncodeOptions options;
  options.add_eos = false;
  // An unset field follows the model: a model without bos has none to add.
  if (request.has_add_bos() && !request.add_bos()) options.add_bos = false;
  return Prefixed("text", service.tokenizer().Encode(request.text(), options));
}

absl::Status RunTokenize(const TextService& service, const v1::TokenizeRequest& request,
                         v1::TokenizeResponse& response) {
  LK_RETURN_IF_ERROR(service.CheckModel(request.model()));
  TokenList tokens;
  if (request.has_chat()) {
    if (!request.text().empty()) {
      return absl::InvalidArgumentError("text: set beside chat, expected one of them");
    }
    LK_ASSIGN_OR_RETURN(ChatPrompt prompt, service.TokenizeChat(FromProto(request.chat())));
    tokens = std::move(prompt.tokens);
    response.set_rendered_text(std::move(prompt.text));
  } else {
    LK_ASSIGN_OR_RETURN(tokens, TokenizeText(service, request));
  }
  response.mutable_token_ids()->Assign(tokens.begin(), tokens.end());
  for (int32_t token : tokens) {
    LK_ASSIGN_OR_RETURN(const std::string_view piece, service.tokenizer().IdToPiece(token));
    response.add_pieces(std::string(piece));
  }
  return absl::OkStatus();
}

absl::Status RunDetokenize(const TextService& service, const v1::DetokenizeRequest& request,
                           v1::DetokenizeResponse& response) {
  LK_RETURN_IF_ERROR(service.CheckModel(request.model()));
  if (request.token_ids_size() > kMaxDetokenizeIds) {
    return absl::InvalidArgumentError(absl::StrCat("token_ids: ", request.token_ids_size(),
                                                   " ids, expected at most ", kMaxDetokenizeIds));
  }
  const TokenList tokens(request.token_ids().begin(), request.token_ids().end());
  LK_RETURN_IF_ERROR(service.CheckTokens("token_ids", tokens));
  LK_ASSIGN_OR_RETURN(*response.mutable_text(), service.tokenizer().Decode(tokens));
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
  return Answer(context, RunTokenize(service_, *request, *response));
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  return Answer(context, RunDetokenize(service_, *request, *response));
}

}  // namespace lowkey
