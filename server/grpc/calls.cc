#include "server/grpc/calls.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grpc/convert.h"
#include "server/grpc/status.h"
#include "server/metrics/metrics.h"

namespace lowkey {
namespace {

// The status of a request that is refused before it is admitted.
absl::Status Refusal(const CallContext& context, const absl::Status& status) {
  Metrics* const metrics = context.service.options().metrics;
  if (metrics != nullptr) metrics->CountRefusal(status.code());
  return status;
}

// The message and what came beside it. The errors of FromProto, and of the credentials.
template <typename Proto>
auto ToRequest(const CallContext& context, const Proto& proto) -> decltype(FromProto(proto)) {
  LK_RETURN_IF_ERROR(context.tenant.status());
  LK_ASSIGN_OR_RETURN(auto request, FromProto(proto));
  request.tenant = *context.tenant;
  request.deadline = context.deadline;
  return request;
}

constexpr size_t kPauseTokens = 256;
constexpr size_t kResumeTokens = 128;

absl::Status StalledReader(absl::Duration timeout) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the reader does not keep up: ", kPauseTokens, " tokens have waited for it for ",
                   absl::FormatDuration(timeout), ", expected it to read"));
}

class StreamListener : public GenerationListener {
 public:
  StreamListener(std::shared_ptr<StreamCall> call, const Tokenizer& tokenizer)
      : call_(std::move(call)), tokenizer_(tokenizer) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    call_->OnPromptLogprobs(ToProto(logprobs, tokenizer_));
  }
  SinkAnswer OnDelta(ChoiceDelta delta) override {
    return call_->OnDelta(ToProto(delta, tokenizer_));
  }
  void OnDone(const GenerationResult& result) override { call_->OnEnd(result); }

 private:
  const std::shared_ptr<StreamCall> call_;
  const Tokenizer& tokenizer_;
};

class UnaryListener : public GenerationListener {
 public:
  UnaryListener(std::shared_ptr<UnaryCall> call, const Tokenizer& tokenizer)
      : call_(std::move(call)), tokenizer_(tokenizer) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    *call_->response().mutable_prompt_logprobs() = ToProto(logprobs, tokenizer_);
  }
  SinkAnswer OnDelta(ChoiceDelta delta) override {
    v1::GenerateResponse& response = call_->response();
    while (response.choices_size() <= delta.choice) {
      const int32_t choice = response.choices_size();
      response.add_choices()->set_choice(choice);
    }
    Append(ToProto(delta, tokenizer_), *response.mutable_choices(delta.choice));
    return SinkAnswer::kContinue;
  }
  void OnDone(const GenerationResult& result) override { call_->OnEnd(result); }

 private:
  const std::shared_ptr<UnaryCall> call_;
  const Tokenizer& tokenizer_;
};

}  // namespace

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  // gRPC says "never" with the last time there is, give or take a conversion.
  if (deadline > std::chrono::system_clock::now() + std::chrono::hours(24 * 365)) {
    return absl::InfiniteFuture();
  }
  return absl::FromChrono(deadline);
}

void CallLog::Write(const absl::Status& status, std::optional<GenerationResult> result) const {
  if (log_ == nullptr) return;
  log_->Write({method_, tenant_, status, absl::Now() - start_, std::move(result)});
}

StreamCall::StreamCall(const CallContext& context)
    : log_(context, "GenerateStream"),
      metrics_(context.service.options().metrics),
      stall_timeout_(context.stall_timeout),
      link_(context.service) {}

grpc::ServerWriteReactor<v1::GenerateEvent>* StreamCall::Start(const CallContext& context,
                                                               const v1::GenerateRequest& proto) {
  auto call = std::make_shared<StreamCall>(context);
  call->self_ = call;
  const absl::StatusOr<GenerationRequest> request = ToRequest(context, proto);
  if (!request.ok()) {
    call->Refuse(Refusal(context, request.status()));
    return call.get();
  }
  const absl::StatusOr<RequestId> id = context.service.Generate(
      *request, std::make_unique<StreamListener>(call, context.service.tokenizer()));
  if (id.ok()) {
    call->live_.emplace(context.live_calls);
    call->link_.Submitted({*id});
  } else {
    call->Refuse(Refusal(context, id.status()));
  }
  return call.get();
}

void StreamCall::Refuse(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  status_ = status;
  WriteNext();
}

void StreamCall::OnPromptLogprobs(v1::PromptLogprobs logprobs) {
  v1::GenerateEvent event;
  *event.mutable_prompt_logprobs() = std::move(logprobs);
  absl::MutexLock lock(&mutex_);
  queue_.Add(std::move(event));
  WriteNext();
}

SinkAnswer StreamCall::OnDelta(v1::ChoiceDelta delta) {
  absl::MutexLock lock(&mutex_);
  if (is_reader_gone_ || is_stalled_) return SinkAnswer::kCancel;
  queue_.AddDelta(std::move(delta));
  WriteNext();
  if (queue_.n_tokens() < kPauseTokens) return SinkAnswer::kContinue;
  BeginPause();
  return SinkAnswer::kPause;
}

void StreamCall::BeginPause() {
  if (stall_alarm_ != nullptr) return;
  if (metrics_ != nullptr) metrics_->AddPausedStreams(1);
  stall_alarm_ = std::make_unique<grpc::Alarm>();
  stall_alarm_->Set(absl::ToChronoTime(absl::Now() + stall_timeout_),
                    [call = self_, pause = ++n_pauses_](bool is_due) {
                      if (is_due) call->OnStallTimeout(pause);
                    });
}

void StreamCall::EndPause() {
  if (stall_alarm_ == nullptr) return;
  if (metrics_ != nullptr) metrics_->AddPausedStreams(-1);
  stall_alarm_.reset();  // cancels it
}

// The alarm may be due in the moment in which its pause ends.
void StreamCall::OnStallTimeout(int64_t pause) {
  {
    absl::MutexLock lock(&mutex_);
    if (stall_alarm_ == nullptr || pause != n_pauses_) return;
    is_stalled_ = true;
  }
  link_.Cancel();
}

void StreamCall::OnEnd(const GenerationResult& result) {
  v1::GenerateEvent event;
  *event.mutable_final() = ToProto(result);
  absl::MutexLock lock(&mutex_);
  queue_.Add(std::move(event));
  EndPause();
  status_ = is_stalled_ ? StalledReader(stall_timeout_) : result.engine.status;
  result_ = result;
  WriteNext();
}

void StreamCall::WriteNext() {
  if (is_writing_) return;
  if (is_reader_gone_) queue_.Clear();
  if (!queue_.empty()) {
    is_writing_ = true;
    StartWrite(&queue_.front());
  } else if (status_.has_value()) {
    is_writing_ = true;  // nothing follows the status
    Finish(ToGrpcStatus(*status_));
  }
}

void StreamCall::OnWriteDone(bool ok) {
  if (!ok) link_.Cancel();
  bool resumes = false;
  {
    absl::MutexLock lock(&mutex_);
    is_writing_ = false;
    is_reader_gone_ |= !ok;
    queue_.PopFront();
    WriteNext();
    resumes = stall_alarm_ != nullptr && queue_.n_tokens() < kResumeTokens;
    if (resumes) EndPause();
  }
  // Not under the lock: the engine may be waiting for it, to deliver a token.
  if (resumes) link_.Resume();
}

void StreamCall::OnDone() {
  const std::shared_ptr<StreamCall> self = std::move(self_);
  absl::Status status;
  std::optional<GenerationResult> result;
  {
    absl::MutexLock lock(&mutex_);
    status = status_.value_or(absl::OkStatus());
    result = std::move(result_);
  }
  log_.Write(status, std::move(result));
}

UnaryCall::UnaryCall(const CallContext& context, v1::GenerateResponse* response)
    : log_(context, "Generate"), link_(context.service), response_(response) {}

grpc::ServerUnaryReactor* UnaryCall::Start(const CallContext& context,
                                           const v1::GenerateRequest& proto,
                                           v1::GenerateResponse* response) {
  auto call = std::make_shared<UnaryCall>(context, response);
  call->self_ = call;
  const absl::StatusOr<GenerationRequest> request = ToRequest(context, proto);
  if (request.ok()) {
    const absl::StatusOr<RequestId> id = context.service.Generate(
        *request, std::make_unique<UnaryListener>(call, context.service.tokenizer()));
    if (id.ok()) {
      call->live_.emplace(context.live_calls);
      call->link_.Submitted({*id});
      return call.get();
    }
    call->status_ = id.status();
  } else {
    call->status_ = request.status();
  }
  call->status_ = Refusal(context, call->status_);
  call->Finish(ToGrpcStatus(call->status_));
  return call.get();
}

void UnaryCall::OnEnd(const GenerationResult& result) {
  while (response_->choices_size() < static_cast<int>(result.choices.size())) {
    const int32_t choice = response_->choices_size();
    response_->add_choices()->set_choice(choice);
  }
  *response_->mutable_final() = ToProto(result);
  status_ = result.engine.status;
  result_ = result;
  Finish(ToGrpcStatus(result.engine.status));
}

void UnaryCall::OnDone() {
  const std::shared_ptr<UnaryCall> self = std::move(self_);
  log_.Write(status_, std::move(result_));
}

ScoreCall::ScoreCall(const CallContext& context) : log_(context, "Score"), link_(context.service) {}

grpc::ServerUnaryReactor* ScoreCall::Start(const CallContext& context,
                                           const v1::ScoreRequest& proto,
                                           v1::ScoreResponse* response) {
  auto call = std::make_shared<ScoreCall>(context);
  call->self_ = call;
  const absl::StatusOr<ScoreRequest> request = ToRequest(context, proto);
  if (!request.ok()) {
    call->End(Refusal(context, request.status()));
    return call.get();
  }
  absl::StatusOr<std::vector<RequestId>> ids =
      context.service.Score(*request, [call, response](absl::StatusOr<ScoreResult> result) {
        if (result.ok()) *response = ToProto(*result);
        call->End(result.status());
      });
  if (ids.ok()) {
    call->live_.emplace(context.live_calls);
    call->link_.Submitted(*std::move(ids));
  } else {
    call->End(Refusal(context, ids.status()));
  }
  return call.get();
}

void ScoreCall::End(const absl::Status& status) {
  status_ = status;
  Finish(ToGrpcStatus(status));
}

void ScoreCall::OnDone() {
  const std::shared_ptr<ScoreCall> self = std::move(self_);
  log_.Write(status_, std::nullopt);
}

}  // namespace lowkey
