#include "server/api/kserve/describe.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/api/kserve/infer_request.h"
#include "server/api/kserve/settings.h"
#include "server/version.h"

namespace lowkey {
namespace {

constexpr char kPlatform[] = "lowkey";

}  // namespace

absl::Status CheckServed(const TextService& service, const std::string& name,
                         const std::string& version) {
  LK_RETURN_IF_ERROR(service.CheckModel(name));
  if (version.empty() || version == kModelVersion) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("version: ", ShortText(version), ", expected none or \"1\""));
}

void DescribeServer(inference::ServerMetadataResponse& response) {
  response.set_name(kPlatform);
  response.set_version(kVersion);
  response.add_extensions("model_configuration");
  response.add_extensions("statistics");
}

void DescribeModel(const TextService& service, inference::ModelMetadataResponse& response) {
  response.set_name(service.options().model_name);
  response.add_versions(std::string(kModelVersion));
  response.set_platform(kPlatform);
  const auto put = [](const TensorInfo& info, auto& tensor) {
    tensor.set_name(std::string(info.name));
    tensor.set_datatype(std::string(info.datatype));
    tensor.add_shape(info.dim);
  };
  for (const TensorInfo& info : InputTensors()) put(info, *response.add_inputs());
  for (const TensorInfo& info : OutputTensors()) put(info, *response.add_outputs());
}

void DescribeConfig(const TextService& service, inference::ModelConfig& config) {
  config.set_name(service.options().model_name);
  config.set_backend(kPlatform);
  config.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  config.set_max_batch_size(0);
  config.mutable_model_transaction_policy()->set_decoupled(true);
  for (const TensorInfo& info : InputTensors()) {
    inference::ModelInput& input = *config.add_input();
    input.set_name(std::string(info.name));
    input.set_data_type(info.type);
    input.add_dims(info.dim);
    input.set_optional(info.is_optional);
  }
  for (const TensorInfo& info : OutputTensors()) {
    inference::ModelOutput& output = *config.add_output();
    output.set_name(std::string(info.name));
    output.set_data_type(info.type);
    output.add_dims(info.dim);
  }
  (*config.mutable_parameters())["context_tokens"].set_string_value(
      absl::StrCat(service.engine().limits().context_tokens));
}

void DescribeRepository(const TextService& service,
                        const inference::RepositoryIndexRequest& request, bool is_ready,
                        inference::RepositoryIndexResponse& response) {
  if (!request.repository_name().empty() || (request.ready() && !is_ready)) return;
  auto& model = *response.add_models();
  model.set_name(service.options().model_name);
  model.set_version(std::string(kModelVersion));
  model.set_state(is_ready ? "READY" : "UNAVAILABLE");
  if (!is_ready) model.set_reason("the server is draining");
}

}  // namespace lowkey
