#include "server/api/kserve/services.h"

#include <google/protobuf/descriptor.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "inference/grpc_service.pb.h"
#include "server/api/kserve/describe.h"
#include "server/request/limits.h"
#include "server/rpc/single_request.h"
#include "server/rpc/wire_check.h"

namespace lowkey {
namespace {

// Adds methods by their names.
class Service {
 public:
  Service(RpcRegistry& registry, const InferContext& context)
      : registry_(registry),
        workers_(context.generation.workers),
        descriptor_(*inference::ModelInferRequest::descriptor()->file()->FindServiceByName(
            "GRPCInferenceService")) {}

  void Add(const char* method, MakeRpcHandler make_handler,
           size_t max_message_bytes = kMaxMessageBytes) {
    registry_.Add(*descriptor_.FindMethodByName(method), std::move(make_handler),
                  max_message_bytes);
  }

  // A method that nobody needs credentials for.
  template <typename Request, typename Response>
  void AddOpen(const char* method, std::function<void(Response&)> fill) {
    const auto run =
        [fill = std::move(fill)](const std::string& message) -> absl::StatusOr<std::string> {
      Request request;
      LK_RETURN_IF_ERROR(ParseMessage(message, request));
      Response response;
      fill(response);
      return response.SerializeAsString();
    };
    Add(method, MakeImmediateHandler(run), kSmallMessageBytes);
  }

  template <typename Request, typename Response>
  void AddUnary(const char* method, std::function<absl::Status(const Request&, Response&)> run) {
    Add(method, UnaryMethod<Request, Response>(
                    workers_, [run = std::move(run)](const RpcContext&, const CallState&,
                                                     const Request& request, Response& response) {
                      return run(request, response);
                    }));
  }

  void AddUnimplemented(const char* method, const char* why) {
    Add(method, MakeImmediateHandler([message = absl::StrCat(method, ": ", why)](
                                         const std::string&) -> absl::StatusOr<std::string> {
          return absl::UnimplementedError(message);
        }));
  }

 private:
  RpcRegistry& registry_;
  const RpcWorkers& workers_;
  const google::protobuf::ServiceDescriptor& descriptor_;
};

void AddDescriptions(Service& methods, const InferContext& context,
                     const std::function<bool()>& is_ready) {
  using namespace inference;
  const TextService& service = context.generation.service;
  methods.AddUnary<ModelReadyRequest, ModelReadyResponse>(
      "ModelReady", [&service, is_ready](const auto& request, auto& response) {
        response.set_ready(is_ready() &&
                           CheckServed(service, request.name(), request.version()).ok());
        return absl::OkStatus();
      });
  methods.AddUnary<ServerMetadataRequest, ServerMetadataResponse>("ServerMetadata",
                                                                  [](const auto&, auto& response) {
                                                                    DescribeServer(response);
                                                                    return absl::OkStatus();
                                                                  });
  methods.AddUnary<ModelMetadataRequest, ModelMetadataResponse>(
      "ModelMetadata", [&service](const auto& request, auto& response) {
        const absl::Status status = CheckServed(service, request.name(), request.version());
        if (status.ok()) DescribeModel(service, response);
        return status;
      });
  methods.AddUnary<ModelConfigRequest, ModelConfigResponse>(
      "ModelConfig", [&service](const auto& request, auto& response) {
        const absl::Status status = CheckServed(service, request.name(), request.version());
        if (status.ok()) DescribeConfig(service, *response.mutable_config());
        return status;
      });
  methods.AddUnary<ModelStatisticsRequest, ModelStatisticsResponse>(
      "ModelStatistics",
      [&service, counters = context.counters](const auto& request, auto& response) {
        const absl::Status status = CheckServed(service, request.name(), request.version());
        if (!status.ok()) return status;
        inference::ModelStatistics& statistics = *response.add_model_stats();
        statistics = counters->ToProto();
        statistics.set_name(service.options().model_name);
        statistics.set_version(std::string(kModelVersion));
        return status;
      });
  methods.AddUnary<RepositoryIndexRequest, RepositoryIndexResponse>(
      "RepositoryIndex", [&service, is_ready](const auto& request, auto& response) {
        DescribeRepository(service, request, is_ready(), response);
        return absl::OkStatus();
      });
}

}  // namespace

void AddInferenceService(RpcRegistry& registry, const InferContext& context,
                         std::function<bool()> is_ready) {
  Service methods(registry, context);
  methods.AddOpen<inference::ServerLiveRequest, inference::ServerLiveResponse>(
      "ServerLive", [](auto& response) { response.set_live(true); });
  methods.AddOpen<inference::ServerReadyRequest, inference::ServerReadyResponse>(
      "ServerReady", [is_ready](auto& response) { response.set_ready(is_ready()); });
  AddDescriptions(methods, context, is_ready);
  methods.Add("ModelInfer", InferHandler(context));
  methods.Add("ModelStreamInfer", StreamInferHandler(context));
  constexpr char kOneModel[] = "not supported, expected the model that the server was started with";
  constexpr char kNoSharing[] = "not supported, expected tensors in the messages themselves";
  constexpr char kFlags[] = "not supported, expected serve's flags";
  methods.AddUnimplemented("RepositoryModelLoad", kOneModel);
  methods.AddUnimplemented("RepositoryModelUnload", kOneModel);
  for (const char* method :
       {"SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus", "CudaSharedMemoryRegister", "CudaSharedMemoryUnregister"}) {
    methods.AddUnimplemented(method, kNoSharing);
  }
  methods.AddUnimplemented("TraceSetting", kFlags);
  methods.AddUnimplemented("LogSettings", kFlags);
}

}  // namespace lowkey
