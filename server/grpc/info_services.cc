#include "server/grpc/info_services.h"

#include "absl/strings/str_cat.h"
#include "server/grpc/connection/address.h"
#include "server/grpc/convert/status.h"
#include "server/grpc/convert_response.h"
#include "server/version.h"

namespace lowkey {

grpc::ServerUnaryReactor* ModelsService::ListModels(grpc::CallbackServerContext* context,
                                                    const v1::ListModelsRequest*,
                                                    v1::ListModelsResponse* response) {
  *response->add_models() = DescribeModel(service_);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* ModelsService::GetModel(grpc::CallbackServerContext* context,
                                                  const v1::GetModelRequest* request,
                                                  v1::Model* response) {
  const absl::Status status = service_.CheckModel(request->name());
  if (status.ok()) *response = DescribeModel(service_);
  return Answer(context, status);
}

grpc::ServerUnaryReactor* AdminService::Stats(grpc::CallbackServerContext* context,
                                              const v1::StatsRequest*,
                                              v1::StatsResponse* response) {
  const EngineStats stats = service_.engine().Stats();
  response->set_version(kVersion);
  response->set_uptime_s(absl::ToDoubleSeconds(absl::Now() - start_));
  response->set_running_requests(stats.n_running_requests);
  response->set_waiting_requests(stats.n_waiting_requests);
  response->set_finished_requests(stats.n_finished_requests);
  response->set_cancelled_requests(stats.n_cancelled_requests);
  response->set_prompt_tokens(stats.n_prompt_tokens);
  response->set_generated_tokens(stats.n_generated_tokens);
  response->set_steps(stats.n_steps);
  response->set_cache_bytes_total(stats.cache_bytes_total);
  response->set_cache_bytes_used(stats.cache_bytes_used);
  response->set_weight_bytes(stats.weight_bytes);
  response->set_dtype(stats.dtype);
  response->set_instruction_set(stats.instruction_set);
  response->set_threads(stats.n_threads);
  response->set_preemptions(stats.n_preemptions);
  response->set_cached_prompt_tokens(stats.n_prefix_tokens);
  response->set_cache_bytes_prefix(stats.cache_bytes_prefix);
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest*,
                                              v1::DrainResponse* response) {
  if (!options_.may_anyone_drain && !IsLoopbackPeer(context->peer())) {
    return Answer(context,
                  absl::PermissionDeniedError(absl::StrCat(
                      "Drain: called from ", context->peer(),
                      ", expected a caller on the server's own machine, or serve --tokens")));
  }
  options_.begin_drain();
  const EngineStats stats = service_.engine().Stats();
  response->set_unfinished_requests(stats.n_running_requests + stats.n_waiting_requests);
  return Answer(context, absl::OkStatus());
}

}  // namespace lowkey
