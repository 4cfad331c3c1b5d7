#include "server/api/openai/routes.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "server/api/http/api_error.h"
#include "server/api/http/json_writer.h"
#include "server/api/openai/chat.h"
#include "server/api/openai/completions.h"
#include "server/api/openai/models.h"
#include "server/api/openai/responses/responses.h"
#include "server/api/openai/score.h"
#include "server/api/openai/tokens.h"
#include "server/rpc/single_request.h"
#include "server/version.h"

namespace lowkey {
namespace {

// Names what answers may depend on beside the request.
std::string FingerprintOf(const TextService& service) {
  const EngineStats stats = service.engine().Stats();
  return absl::StrCat(std::string(kVersion), "-", stats.dtype, "-", stats.processor);
}

void AddModels(HttpRoutes& routes, const GenerationContext& context, const HttpServices& services) {
  const TextService& service = context.service;
  const int64_t created = absl::ToUnixSeconds(DateNow());
  routes.AddCall("GET", "/v1/models", services,
                 OnWorker(context.workers,
                          [&service, created](const RpcContext&, const CallState&,
                                              const std::string&) -> absl::StatusOr<std::string> {
                            return ListModelsJson(service, created);
                          }));
  routes.AddCall("GET", "/v1/models/", services,
                 OnWorker(context.workers,
                          [&service, created](const RpcContext& rpc, const CallState&,
                                              const std::string&) -> absl::StatusOr<std::string> {
                            return ModelJson(service, created, rpc.method);
                          }));
}

void AddGenerations(HttpRoutes& routes, const GenerationContext& context,
                    const HttpServices& services,
                    const std::shared_ptr<const OpenAiOptions>& options) {
  const TextService& service = context.service;
  const std::string fingerprint = FingerprintOf(service);
  routes.AddCall(
      "POST", "/v1/completions", services,
      GenerationHandler(context, "openai/completions",
                        [&service, options, fingerprint](
                            const RpcContext& rpc, const CallState& call, const std::string& body) {
                          return ReadCompletions(service, *options, fingerprint, rpc, call, body);
                        }));
  routes.AddCall(
      "POST", "/v1/chat/completions", services,
      GenerationHandler(context, "openai/chat",
                        [&service, options, fingerprint](
                            const RpcContext& rpc, const CallState& call, const std::string& body) {
                          return ReadChat(service, *options, fingerprint, rpc, call, body);
                        }));
  routes.AddCall("POST", "/v1/responses", services,
                 GenerationHandler(context, "openai/responses",
                                   [&service, options](const RpcContext& rpc, const CallState&,
                                                       const std::string& body) {
                                     return ReadResponses(service, *options, rpc, body);
                                   }));
}

void AddTokens(HttpRoutes& routes, const GenerationContext& context, const HttpServices& services,
               const std::shared_ptr<const OpenAiOptions>& options) {
  const TextService& service = context.service;
  routes.AddCall(
      "POST", "/tokenize", services,
      OnWorker(context.workers, [&service, options](const RpcContext& rpc, const CallState& call,
                                                    const std::string& body) {
        return TokenizeJson(service, *options, rpc, call, body);
      }));
  routes.AddCall(
      "POST", "/detokenize", services,
      OnWorker(context.workers, [&service, options](const RpcContext& rpc, const CallState& call,
                                                    const std::string& body) {
        return DetokenizeJson(service, *options, rpc, call, body);
      }));
  routes.AddCall("GET", "/tokenizer_info", services,
                 OnWorker(context.workers,
                          [&service](const RpcContext&, const CallState&,
                                     const std::string&) -> absl::StatusOr<std::string> {
                            return TokenizerInfoJson(service);
                          }));
}

std::string VersionJson() {
  std::string json;
  JsonWriter writer(json);
  writer.BeginObject().Key("version").Text(kVersion).Key("commit").Text(kCommit).EndObject();
  return json;
}

}  // namespace

absl::Status UnknownApiPath(std::string_view path) {
  // Of responses only what keeps them is left out: /v1/responses/ID.
  constexpr std::string_view kLeftOut[] = {
      "responses", "embeddings", "messages", "images",      "audio",  "moderations", "files",
      "batches",   "assistants", "threads",  "fine_tuning", "rerank", "score"};
  const std::string name(path.substr(0, 128));
  for (const std::string_view endpoint : kLeftOut) {
    const std::string prefix = absl::StrCat("/v1/", std::string(endpoint));
    if (name != prefix && !absl::StartsWith(name, prefix + "/")) continue;
    return WithErrorCode(
        absl::NotFoundError(absl::StrCat(name,
                                         " is not supported: this server generates text, see "
                                         "/v1/completions, /v1/chat/completions and "
                                         "/v1/responses")),
        "unsupported_endpoint");
  }
  return WithErrorCode(absl::NotFoundError(absl::StrCat(name, ": no such path")), "not_found");
}

void AddOpenAiRoutes(HttpRoutes& routes, const GenerationContext& context,
                     const HttpServices& services, OpenAiOptions options) {
  const auto shared = std::make_shared<const OpenAiOptions>(std::move(options));
  AddModels(routes, context, services);
  AddGenerations(routes, context, services, shared);
  AddTokens(routes, context, services, shared);
  routes.AddCall("POST", "/lowkey/v1/score", services, ScoreJsonHandler(context));
  routes.AddCall("GET", "/version", services, [](HttpStream& stream) {
    return MakeImmediateHandler(
        [](const std::string&) -> absl::StatusOr<std::string> { return VersionJson(); })(stream);
  });
}

}  // namespace lowkey
