#include "client/client.h"

#include <google/protobuf/util/json_util.h>
#include <grpcpp/grpcpp.h>

#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/grpc/convert.h"
#include "server/grpc/status.h"

namespace lowkey {
namespace {

// "FINISH_REASON_STOP_TOKEN" as "stop_token".
std::string ShortName(v1::FinishReason reason) {
  std::string_view name = v1::FinishReason_Name(reason);
  name.remove_prefix(std::min(name.size(), std::string_view("FINISH_REASON_").size()));
  return absl::AsciiStrToLower(std::string(name));
}

GenerationSummary Summarize(const v1::FinalEvent& event) {
  GenerationSummary summary;
  summary.request_id = event.request_id();
  summary.model = event.model();
  for (const v1::ChoiceFinish& choice : event.choices()) {
    summary.finish_reasons.push_back(ShortName(choice.reason()));
  }
  summary.n_prompt_tokens = event.usage().prompt_tokens();
  summary.n_cached_tokens = event.usage().cached_tokens();
  summary.n_generated_tokens = event.usage().generated_tokens();
  summary.queue_us = event.timings().queue_us();
  summary.prefill_us = event.timings().prefill_us();
  summary.decode_us = event.timings().decode_us();
  summary.ttft_us = event.timings().ttft_us();
  summary.seed = event.seed();
  const v1::AttentionReport& attention = event.attention();
  summary.mechanism = attention.mechanism();
  summary.mechanism_reason = attention.reason();
  if (attention.has_rank()) summary.rank = attention.rank();
  summary.n_compressed_blocks = attention.compressed_blocks();
  summary.cache_bytes = attention.cache_bytes();
  summary.peak_cache_bytes = attention.peak_cache_bytes();
  summary.standard_cache_bytes = attention.standard_cache_bytes();
  summary.is_approximate = attention.approximate();
  return summary;
}

LogprobReport ToReport(const v1::ChoiceDelta& delta, const v1::Token& token) {
  LogprobReport report{delta.choice(), token.token_id(), delta.text(), token.logprob(), {}};
  for (const v1::TokenLogprob& alternative : token.top_logprobs()) {
    report.alternatives.emplace_back(alternative.text(), alternative.logprob());
    // The delta's text lags behind its tokens.
    if (alternative.token_id() == token.token_id()) report.text = alternative.text();
  }
  return report;
}

}  // namespace

class Client::Impl {
 public:
  explicit Impl(const ConnectOptions& options)
      : address_(options.address),
        channel_(OpenChannel(options)),
        generation_(v1::Generation::NewStub(channel_)),
        models_(v1::Models::NewStub(channel_)),
        health_(grpc::health::v1::Health::NewStub(channel_)) {}

  // Registers a call's context while it lives, so that Cancel reaches it.
  class Call {
   public:
    Call(Impl& owner, absl::Time deadline) : owner_(owner) {
      if (deadline != absl::InfiniteFuture()) context.set_deadline(absl::ToChronoTime(deadline));
      absl::MutexLock lock(&owner_.mutex_);
      owner_.calls_.push_back(&context);
      if (owner_.is_cancelled_) context.TryCancel();
    }
    ~Call() {
      absl::MutexLock lock(&owner_.mutex_);
      std::erase(owner_.calls_, &context);
    }

    grpc::ClientContext context;

   private:
    Impl& owner_;
  };

  void Cancel() {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    for (grpc::ClientContext* context : calls_) context->TryCancel();
  }

  absl::Status Explained(const grpc::Status& status) const {
    return FromCallStatus(status, address_);
  }

  const std::string address_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::Generation::Stub> generation_;
  const std::unique_ptr<v1::Models::Stub> models_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;

 private:
  absl::Mutex mutex_;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
};

Client::Client(const ConnectOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Client::~Client() = default;

void Client::Cancel() { impl_->Cancel(); }

absl::StatusOr<GenerationSummary> Client::GenerateStream(const GenerationRequest& request,
                                                         const TextCallback& on_text,
                                                         const LogprobCallback& on_logprob) {
  Impl::Call call(*impl_, request.deadline);
  const std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader =
      impl_->generation_->GenerateStream(&call.context, ToProto(request));
  v1::GenerateEvent event;
  std::optional<GenerationSummary> summary;
  while (reader->Read(&event)) {
    if (event.has_delta()) on_text(event.delta().choice(), event.delta().text());
    for (const v1::Token& token : event.delta().tokens()) {
      if (on_logprob && token.has_logprob()) on_logprob(ToReport(event.delta(), token));
    }
    if (event.has_final()) summary = Summarize(event.final());
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return impl_->Explained(status);
  if (!summary.has_value()) {
    return absl::InternalError("the stream ended without its final event, expected one");
  }
  return *std::move(summary);
}

absl::StatusOr<ChatModel> Client::GetModel() {
  Impl::Call call(*impl_, absl::InfiniteFuture());
  v1::Model model;
  const grpc::Status status = impl_->models_->GetModel(&call.context, {}, &model);
  if (!status.ok()) return impl_->Explained(status);
  return ChatModel{model.name(), model.chat_refusal(), model.limits().context_tokens()};
}

absl::StatusOr<int32_t> Client::CountPromptTokens(const GenerationRequest& request) {
  Impl::Call call(*impl_, request.deadline);
  v1::TokenizeRequest tokenize;
  *tokenize.mutable_chat() = ToProto(request).chat();
  v1::TokenizeResponse response;
  const grpc::Status status = impl_->generation_->Tokenize(&call.context, tokenize, &response);
  if (!status.ok()) return impl_->Explained(status);
  return response.token_ids_size();
}

absl::StatusOr<std::string> Client::GenerateJson(const GenerationRequest& request) {
  Impl::Call call(*impl_, request.deadline);
  v1::GenerateResponse response;
  const grpc::Status status =
      impl_->generation_->Generate(&call.context, ToProto(request), &response);
  if (!status.ok()) return impl_->Explained(status);
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
  Impl::Call call(*impl_, deadline);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  Response response;
  const grpc::Status status = impl_->health_->Check(&call.context, request, &response);
  if (!status.ok()) return impl_->Explained(status);
  if (response.status() == Response::SERVING) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(impl_->address_, ": ",
                                             Response::ServingStatus_Name(response.status()),
                                             ", expected SERVING"));
}

}  // namespace lowkey
