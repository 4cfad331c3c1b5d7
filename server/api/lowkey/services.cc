#include "server/api/lowkey/services.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "lowkey/v1/admin.pb.h"
#include "lowkey/v1/generation.pb.h"
#include "lowkey/v1/models.pb.h"
#include "server/api/lowkey/convert_request.h"
#include "server/api/lowkey/convert_response.h"
#include "server/version.h"

namespace lowkey {
namespace {

using google::protobuf::ServiceDescriptor;

const google::protobuf::MethodDescriptor& MethodOf(const char* service, const char* method) {
  const auto* descriptor =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
  return *descriptor->FindMethodByName(method);
}

absl::StatusOr<TokenList> TokenizeText(const TextService& service,
                                       const v1::TokenizeRequest& request) {
  EncodeOptions options;
  options.add_eos = false;
  // An unset field follows the model: a model without bos has none to add.
  if (request.has_add_bos() && !request.add_bos()) options.add_bos = false;
  return Prefixed("text", service.tokenizer().Encode(request.text(), options));
}

absl::Status Tokenize(const TextService& service, const v1::TokenizeRequest& request,
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

absl::Status Detokenize(const TextService& service, const v1::DetokenizeRequest& request,
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

void FillStats(const EngineStats& stats, v1::StatsResponse& response) {
  response.set_running_requests(stats.n_running_requests);
  response.set_waiting_requests(stats.n_waiting_requests);
  response.set_finished_requests(stats.n_finished_requests);
  response.set_cancelled_requests(stats.n_cancelled_requests);
  response.set_prompt_tokens(stats.n_prompt_tokens);
  response.set_generated_tokens(stats.n_generated_tokens);
  response.set_steps(stats.n_steps);
  response.set_cache_bytes_total(stats.cache_bytes_total);
  response.set_cache_bytes_used(stats.cache_bytes_used);
  response.set_weight_bytes(stats.weight_bytes);
  response.set_dtype(stats.dtype);
  response.set_instruction_set(stats.instruction_set);
  response.set_threads(stats.n_threads);
  response.set_preemptions(stats.n_preemptions);
  response.set_cached_prompt_tokens(stats.n_prefix_tokens);
  response.set_cache_bytes_prefix(stats.cache_bytes_prefix);
}

}  // namespace

void AddGenerationService(RpcRegistry& registry, const GenerationContext& context) {
  constexpr char kService[] = "lowkey.v1.Generation";
  TextService& service = context.service;
  registry.Add(MethodOf(kService, "Generate"), EngineCallHandler<GenerateCall>(context));
  registry.Add(MethodOf(kService, "GenerateStream"), EngineCallHandler<StreamCall>(context));
  registry.Add(MethodOf(kService, "Score"), EngineCallHandler<ScoreCall>(context));
  registry.Add(MethodOf(kService, "Tokenize"),
               UnaryMethod<v1::TokenizeRequest, v1::TokenizeResponse>(
                   context.workers, [&service](const RpcContext&, const CallState&,
                                               const auto& request, auto& response) {
                     return Tokenize(service, request, response);
                   }));
  registry.Add(MethodOf(kService, "Detokenize"),
               UnaryMethod<v1::DetokenizeRequest, v1::DetokenizeResponse>(
                   context.workers, [&service](const RpcContext&, const CallState&,
                                               const auto& request, auto& response) {
                     return Detokenize(service, request, response);
                   }));
}

void AddModelsService(RpcRegistry& registry, const GenerationContext& context) {
  constexpr char kService[] = "lowkey.v1.Models";
  const TextService& service = context.service;
  registry.Add(MethodOf(kService, "ListModels"),
               UnaryMethod<v1::ListModelsRequest, v1::ListModelsResponse>(
                   context.workers,
                   [&service](const RpcContext&, const CallState&, const auto&, auto& response) {
                     *response.add_models() = DescribeModel(service);
                     return absl::OkStatus();
                   }));
  registry.Add(MethodOf(kService, "GetModel"),
               UnaryMethod<v1::GetModelRequest, v1::Model>(
                   context.workers, [&service](const RpcContext&, const CallState&,
                                               const auto& request, auto& response) {
                     const absl::Status status = service.CheckModel(request.name());
                     if (status.ok()) response = DescribeModel(service);
                     return status;
                   }));
}

void AddAdminService(RpcRegistry& registry, const GenerationContext& context,
                     AdminOptions options) {
  constexpr char kService[] = "lowkey.v1.Admin";
  const TextService& service = context.service;
  registry.Add(MethodOf(kService, "Stats"),
               UnaryMethod<v1::StatsRequest, v1::StatsResponse>(
                   context.workers,
                   [&service, start = absl::Now()](const RpcContext&, const CallState&, const auto&,
                                                   auto& response) {
                     FillStats(service.engine().Stats(), response);
                     response.set_version(kVersion);
                     response.set_uptime_s(absl::ToDoubleSeconds(absl::Now() - start));
                     return absl::OkStatus();
                   }));
  registry.Add(
      MethodOf(kService, "Drain"),
      UnaryMethod<v1::DrainRequest, v1::DrainResponse>(
          context.workers,
          [&service, options = std::move(options)](const RpcContext& rpc, const CallState&,
                                                   const auto&, auto& response) -> absl::Status {
            if (!options.may_anyone_drain && !rpc.peer.is_loopback) {
              return absl::PermissionDeniedError(absl::StrCat(
                  "Drain: called from ", rpc.peer.address,
                  ", expected a caller on the server's own machine, or serve --tokens"));
            }
            options.begin_drain();
            const EngineStats stats = service.engine().Stats();
            response.set_unfinished_requests(stats.n_running_requests + stats.n_waiting_requests);
            return absl::OkStatus();
          }));
}

}  // namespace lowkey
