#include "server/api/lowkey/services.h"

#include <google/protobuf/arena.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
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

// Reads a message of type Proto into a request.
template <typename Proto>
auto ReadRequest(const std::string& message) -> decltype(FromProto(std::declval<Proto>())) {
  // Parsing that ends for a lack of memory leaves a message that only an arena can destroy.
  google::protobuf::Arena arena;
  Proto& proto = *google::protobuf::Arena::CreateMessage<Proto>(&arena);
  LK_RETURN_IF_ERROR(ParseMessage(message, proto));
  return FromProto(proto);
}

class Codec final : public GenerationCodec {
 public:
  absl::StatusOr<GenerationRequest> Read(const std::string& message) override {
    return ReadRequest<v1::GenerateRequest>(message);
  }
  std::string Write(const v1::GenerateEvent& event) override { return event.SerializeAsString(); }
  std::string Write(const v1::GenerateResponse& response) override {
    return response.SerializeAsString();
  }
};

class ScoresCodec final : public ScoreCodec {
 public:
  absl::StatusOr<ScoreRequest> Read(const std::string& message) override {
    return ReadRequest<v1::ScoreRequest>(message);
  }
  std::string Write(const v1::ScoreResponse& response) override {
    return response.SerializeAsString();
  }
};

absl::Status Tokenize(const TextService& service, const RpcContext& rpc, const CallState& call,
                      const v1::TokenizeRequest& proto, v1::TokenizeResponse& response) {
  LK_ASSIGN_OR_RETURN(TokenizeRequest request, FromProto(proto));
  SetCaller(rpc, call, request);
  LK_ASSIGN_OR_RETURN(TokenizeResult result, service.Tokenize(request));
  response.set_rendered_text(std::move(result.rendered_text));
  response.mutable_token_ids()->Assign(result.tokens.begin(), result.tokens.end());
  response.mutable_pieces()->Reserve(static_cast<int>(result.tokens.size()));
  for (int32_t token : result.tokens) {
    LK_ASSIGN_OR_RETURN(const std::string_view piece, service.tokenizer().IdToPiece(token));
    // Moving a string in would leave a hole in the field when there is no memory for it.
    *response.add_pieces() = piece;
  }
  return absl::OkStatus();
}

absl::Status Detokenize(const TextService& service, const RpcContext& rpc, const CallState& call,
                        const v1::DetokenizeRequest& proto, v1::DetokenizeResponse& response) {
  DetokenizeRequest request = FromProto(proto);
  SetCaller(rpc, call, request);
  LK_ASSIGN_OR_RETURN(*response.mutable_text(), service.Detokenize(request));
  return absl::OkStatus();
}

}  // namespace

void AddGenerationService(RpcRegistry& registry, const GenerationContext& context) {
  constexpr char kService[] = "lowkey.v1.Generation";
  TextService& service = context.service;
  const auto make_codec = [] { return std::make_unique<Codec>(); };
  registry.Add(MethodOf(kService, "Generate"), GenerateHandler(context, "Generate", make_codec));
  registry.Add(MethodOf(kService, "GenerateStream"),
               StreamHandler(context, "GenerateStream", make_codec));
  registry.Add(MethodOf(kService, "Score"),
               ScoreHandler(context, "Score", [] { return std::make_unique<ScoresCodec>(); }));
  registry.Add(MethodOf(kService, "Tokenize"),
               UnaryMethod<v1::TokenizeRequest, v1::TokenizeResponse>(
                   context.workers, [&service](const RpcContext& rpc, const CallState& call,
                                               const auto& request, auto& response) {
                     return Tokenize(service, rpc, call, request, response);
                   }));
  registry.Add(MethodOf(kService, "Detokenize"),
               UnaryMethod<v1::DetokenizeRequest, v1::DetokenizeResponse>(
                   context.workers, [&service](const RpcContext& rpc, const CallState& call,
                                               const auto& request, auto& response) {
                     return Detokenize(service, rpc, call, request, response);
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
  registry.Add(
      MethodOf(kService, "Stats"),
      UnaryMethod<v1::StatsRequest, v1::StatsResponse>(
          context.workers, [&service, start = SteadyNow()](const RpcContext&, const CallState&,
                                                           const auto&, auto& response) {
            FillStats(service.engine().Stats(), response);
            response.set_version(kVersion);
            response.set_uptime_s(absl::ToDoubleSeconds(SteadyNow() - start));
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
