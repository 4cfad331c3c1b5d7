#include "client/client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/call_status.h"
#include "client/live_context.h"
#include "engine/base/status_macros.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/api/lowkey/convert_request.h"

namespace lowkey {
class Client::Impl {
 public:
  explicit Impl(const ConnectOptions& options)
      : address_(options.address),
        channel_(OpenChannel(options)),
        generation_(v1::Generation::NewStub(channel_)),
        models_(v1::Models::NewStub(channel_)),
        health_(grpc::health::v1::Health::NewStub(channel_)) {}

  absl::Status Explained(const grpc::Status& status) const {
    return FromCallStatus(status, address_);
  }

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Generation::Stub> generation_;
  const std::unique_ptr<v1::Models::Stub> models_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  LiveContexts contexts_;
};

Client::Client(const ConnectOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Client::~Client() = default;

void Client::Cancel() { impl_->contexts_.Cancel(); }

absl::StatusOr<v1::FinalEvent> Client::GenerateStream(const GenerationRequest& request,
                                                      const DeltaCallback& on_delta) {
  LiveContext call(impl_->contexts_, request.deadline);
  const std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader =
      impl_->generation_->GenerateStream(call.get(), ToProto(request));
  v1::GenerateEvent event;
  std::optional<v1::FinalEvent> final_event;
  while (reader->Read(&event)) {
    if (event.has_delta()) on_delta(event.delta());
    if (event.has_final()) final_event = event.final();
  }
  LK_RETURN_IF_ERROR(impl_->Explained(reader->Finish()));
  if (!final_event.has_value()) {
    return absl::InternalError("the stream ended without its final event, expected one");
  }
  return *std::move(final_event);
}

absl::StatusOr<ChatModel> Client::GetModel() {
  LiveContext call(impl_->contexts_, absl::InfiniteFuture());
  v1::Model model;
  LK_RETURN_IF_ERROR(impl_->Explained(impl_->models_->GetModel(call.get(), {}, &model)));
  return ChatModel{model.name(), model.chat_refusal(), model.limits().context_tokens()};
}

absl::StatusOr<int32_t> Client::CountPromptTokens(const GenerationRequest& request) {
  LiveContext call(impl_->contexts_, request.deadline);
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat() = ToProto(request).chat();
  v1::TokenizeResponse response;
  LK_RETURN_IF_ERROR(
      impl_->Explained(impl_->generation_->Tokenize(call.get(), tokenize, &response)));
  return response.token_ids_size();
}

absl::StatusOr<std::string> Client::GenerateJson(const GenerationRequest& request) {
  LiveContext call(impl_->contexts_, request.deadline);
  v1::GenerateResponse response;
  LK_RETURN_IF_ERROR(
      impl_->Explained(impl_->generation_->Generate(call.get(), ToProto(request), &response)));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto converted = google::protobuf::util::MessageToJsonString(response, &json, options);
  if (!converted.ok()) return absl::InternalError("the answer cannot be written as JSON");
  // No text of the answer matches: its quotes are escaped.
  return absl::StrReplaceAll(json, {{",\"top_logprobs\":[]", ""}});
}

absl::Status Client::CheckHealth(const std::string& service, absl::Time deadline) {
  using Response = grpc::health::v1::HealthCheckResponse;
  LiveContext call(impl_->contexts_, deadline);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  Response response;
  LK_RETURN_IF_ERROR(impl_->Explained(impl_->health_->Check(call.get(), request, &response)));
  if (response.status() == Response::SERVING) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(impl_->address_, ": ",
                                             Response::ServingStatus_Name(response.status()),
                                             ", expected SERVING"));
}

}  // namespace lowkey
