#include "server/grpc/calls.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grpc/convert/request.h"
#include "server/grpc/convert/status.h"
#include "server/grpc/convert_response.h"
#include "server/metrics/metrics.h"

namespace lowkey {
namespace {

// Submits the message's request with `submit`, in the name of the call's tenant. Errors are those
// of the credentials, FromProto and `submit`; the metrics count them.
template <typename Proto, typename Submit>
absl::Status Begin(const CallContext& context, const Proto& proto, CallParts& parts,
                   const Submit& submit) {
  const auto begin = [&]() -> absl::Status {
    LK_RETURN_IF_ERROR(context.tenant.status());
    LK_ASSIGN_OR_RETURN(auto request, FromProto(proto));
    request.tenant = *context.tenant;
    request.deadline = context.deadline;
    LK_ASSIGN_OR_RETURN(std::vector<RequestId> ids, submit(request));
    parts.live.emplace(context.live_calls);
    parts.link.Submitted(std::move(ids));
    return absl::OkStatus();
  };
  const absl::Status status = begin();
  Metrics* const metrics = context.service.options().metrics;
  if (!status.ok() && metrics != nullptr) metrics->CountRefusal(status.code());
  return status;
}

// Begins a generation whose results go to a listener of type Listener.
template <typename Listener, typename... Arguments>
absl::Status Generate(const CallContext& context, const v1::GenerateRequest& proto,
                      CallParts& parts, const Arguments&... arguments) {
  return Begin(context, proto, parts,
               [&](const GenerationRequest& request) -> absl::StatusOr<std::vector<RequestId>> {
                 TextService& service = context.service;
                 LK_ASSIGN_OR_RETURN(
                     const RequestId id,
                     service.Generate(
                         request, std::make_unique<Listener>(arguments..., service.tokenizer())));
                 return std::vector<RequestId>{id};
               });
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
  UnaryListener(std::shared_ptr<UnaryCall> call, v1::GenerateResponse* response,
                const Tokenizer& tokenizer)
      : call_(std::move(call)), response_(*response), tokenizer_(tokenizer) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    *response_.mutable_prompt_logprobs() = ToProto(logprobs, tokenizer_);
  }
  SinkAnswer OnDelta(ChoiceDelta delta) override {
    AddChoices(delta.choice + 1);
    Append(ToProto(delta, tokenizer_), *response_.mutable_choices(delta.choice));
    return SinkAnswer::kContinue;
  }
  void OnDone(const GenerationResult& result) override {
    AddChoices(static_cast<int32_t>(result.choices.size()));
    *response_.mutable_final() = ToProto(result);
    call_->End(result.engine.status, result);
  }

 private:
  void AddChoices(int32_t n) {
    while (response_.choices_size() < n) {
      const int32_t choice = response_.choices_size();
      response_.add_choices()->set_choice(choice);
    }
  }

  const std::shared_ptr<UnaryCall> call_;
  v1::GenerateResponse& response_;
  const Tokenizer& tokenizer_;
};

}  // namespace

absl::Time DeadlineOf(const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  // gRPC's "never" is the last representable time, give or take a conversion.
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
    : metrics_(context.service.options().metrics),
      stall_timeout_(context.stall_timeout),
      parts_(context, "GenerateStream") {}

grpc::ServerWriteReactor<v1::GenerateEvent>* StreamCall::Start(const CallContext& context,
                                                               const v1::GenerateRequest& proto) {
  auto call = std::make_shared<StreamCall>(context);
  call->self_ = call;
  const absl::Status status = Generate<StreamListener>(context, proto, call->parts_, call);
  if (!status.ok()) {
    absl::MutexLock lock(&call->mutex_);
    call->status_ = status;
    call->WriteNext();
  }
  return call.get();
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
  stall_alarm_.reset();  // cancels the alarm
}

// The alarm may fire in the moment in which its pause ends.
void StreamCall::OnStallTimeout(int64_t pause) {
  {
    absl::MutexLock lock(&mutex_);
    if (stall_alarm_ == nullptr || pause != n_pauses_) return;
    is_stalled_ = true;
  }
  parts_.link.Cancel();
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
  if (!ok) parts_.link.Cancel();
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
  // The lock is free here: the engine may be waiting for it to deliver a token.
  if (resumes) parts_.link.Resume();
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
  parts_.log.Write(status, std::move(result));
}

grpc::ServerUnaryReactor* UnaryCall::Start(const CallContext& context,
                                           const v1::GenerateRequest& proto,
                                           v1::GenerateResponse* response) {
  auto call = std::make_shared<UnaryCall>(context, "Generate");
  call->self_ = call;
  const absl::Status status = Generate<UnaryListener>(context, proto, call->parts_, call, response);
  if (!status.ok()) call->End(status);
  return call.get();
}

grpc::ServerUnaryReactor* UnaryCall::Start(const CallContext& context,
                                           const v1::ScoreRequest& proto,
                                           v1::ScoreResponse* response) {
  auto call = std::make_shared<UnaryCall>(context, "Score");
  call->self_ = call;
  const absl::Status status = Begin(context, proto, call->parts_, [&](const ScoreRequest& request) {
    return context.service.Score(request, [call, response](absl::StatusOr<ScoreResult> result) {
      if (result.ok()) *response = ToProto(*result);
      call->End(result.status());
    });
  });
  if (!status.ok()) call->End(status);
  return call.get();
}

void UnaryCall::End(const absl::Status& status, std::optional<GenerationResult> result) {
  status_ = status;
  result_ = std::move(result);
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnDone() {
  const std::shared_ptr<UnaryCall> self = std::move(self_);
  parts_.log.Write(status_, std::move(result_));
}

}  // namespace lowkey
