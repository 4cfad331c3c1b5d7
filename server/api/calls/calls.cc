#include "server/api/calls/calls.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "server/api/lowkey/convert_response.h"
#include "server/metrics/metrics.h"

namespace lowkey {
namespace {

constexpr size_t kPauseTokens = 256;
constexpr size_t kResumeTokens = 128;
// So much of an answer is handed to the connection ahead of its reader; the rest stays in the
// queue, where neighboring deltas are joined.
constexpr size_t kMaxUnsentBytes = 16 << 10;
// The loop itself reads messages and tokenizes texts of at most these sizes, in about 0.1 ms.
constexpr size_t kQuickMessageBytes = 4 << 10;
constexpr size_t kQuickTextBytes = 1 << 10;
constexpr size_t kQuickIds = 1 << 10;

bool IsQuick(const GenerationRequest& request, const Defaults& defaults) {
  if (request.response_format.has_value()) return false;
  const std::optional<std::string>& mechanism = request.attention.mechanism;
  const bool is_chosen =
      mechanism.has_value() ? *mechanism == kAutoMechanism : defaults.selection.has_value();
  if (is_chosen) return false;
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    return text->size() <= kQuickTextBytes;
  }
  const auto* ids = std::get_if<TokenList>(&request.input);
  return ids != nullptr && ids->size() <= kQuickIds;
}

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
    call_->OnPromptLogprobs(std::move(logprobs));
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
  UnaryListener(std::shared_ptr<GenerateCall> call, const Tokenizer& tokenizer)
      : call_(std::move(call)), response_(call_->response()), tokenizer_(tokenizer) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    call_->KeepPromptLogprobs(std::move(logprobs));
  }
  SinkAnswer OnDelta(ChoiceDelta delta) override {
    AddChoices(delta.choice + 1);
    const v1::ChoiceDelta proto = ToProto(delta, tokenizer_);
    n_bytes_ += proto.ByteSizeLong();
    if (n_bytes_ > kMaxAnswerBytes) return SinkAnswer::kCancel;
    Append(proto, *response_.mutable_choices(delta.choice));
    return SinkAnswer::kContinue;
  }
  void OnDone(const GenerationResult& result) override {
    RunInTheEnd([&] {
      AddChoices(static_cast<int32_t>(result.choices.size()));
      *response_.mutable_final() = ToProto(result);
    });
    RunInTheEnd([&] {
      const bool is_too_long = n_bytes_ > kMaxAnswerBytes;
      call_->SetEnd(is_too_long ? AnswerTooLong(n_bytes_) : result.engine.status, result);
    });
  }

 private:
  void AddChoices(int32_t n) {
    while (response_.choices_size() < n) {
      const int32_t choice = response_.choices_size();
      response_.add_choices()->set_choice(choice);
    }
  }

  const std::shared_ptr<GenerateCall> call_;
  v1::GenerateResponse& response_;
  const Tokenizer& tokenizer_;
  size_t n_bytes_ = 0;  // of the deltas
};

// Submits a request whose results go to a Listener of the call.
template <typename Listener, typename Call>
absl::StatusOr<std::vector<RequestId>> SubmitGeneration(TextService& service,
                                                        const GenerationRequest& request,
                                                        std::shared_ptr<Call> call) {
  std::vector<RequestId> ids(1);  // nothing may throw once the request runs
  LK_ASSIGN_OR_RETURN(ids[0], service.Generate(request, std::make_unique<Listener>(
                                                            std::move(call), service.tokenizer())));
  return ids;
}

// Joins a call with its stream. The work on the worker keeps the call alive.
class Handler final : public SingleRequestHandler {
 public:
  Handler(RpcStream& stream, const GenerationContext& context, std::shared_ptr<EngineCall> call)
      : SingleRequestHandler(stream), context_(context), call_(std::move(call)) {}
  ~Handler() override { call_->Detach(); }

 private:
  void OnRequest(RpcMessage message) override {
    call_->Attach(stream_);
    if (message.bytes.size() <= kQuickMessageBytes && context_.workers.MayRunOnLoop() &&
        call_->BeginSmall(message.bytes)) {
      // Sends a refusal now. The stream ends with it, and may take this handler along.
      const std::shared_ptr<EngineCall> call = call_;
      return call->Advance();
    }
    const absl::Status status = context_.workers.Run(
        [call = call_, message = std::move(message)] { call->Begin(message.bytes); });
    if (!status.ok()) call_->Refuse(status);
  }
  void OnSent() override { call_->Advance(); }
  void OnFinished(const absl::Status& status) override { call_->NoteFinished(status); }

  const GenerationContext& context_;
  const std::shared_ptr<EngineCall> call_;
};

template <typename Call, typename MakeCodec>
MakeRpcHandler HandlerOf(const GenerationContext& context, std::string method,
                         MakeCodec make_codec) {
  return [&context, method = std::move(method),
          make_codec = std::move(make_codec)](RpcStream& stream) {
    return std::make_unique<Handler>(stream, context,
                                     std::make_shared<Call>(context, method, stream, make_codec()));
  };
}

}  // namespace

absl::Status AnswerTooLong(size_t n_bytes) {
  return absl::InvalidArgumentError(absl::StrCat("answer: ", n_bytes, " bytes, expected at most ",
                                                 kMaxAnswerBytes,
                                                 "; ask for fewer logprobs, or for a stream"));
}

EngineCall::EngineCall(const GenerationContext& context, std::string method,
                       const RpcStream& stream)
    : context_(context),
      rpc_(stream.context()),
      link_(context.service),
      loop_(stream.loop()),
      method_(std::move(method)),
      engine_call_(context.engine_calls) {}

void EngineCall::Attach(RpcStream& stream) {
  stream_ = &stream;
  live_.emplace(context_.live_calls);
}

EngineCall::~EngineCall() {
  if (!due_log_.has_value()) return;
  RunContained([this] { context_.log->Write(*due_log_); });
}

void EngineCall::Detach() {
  stream_ = nullptr;
  live_.reset();
  const bool is_cancelled = !final_status_.has_value();
  if (is_cancelled) {
    RunInTheEnd([this] { link_.Cancel(); });
    final_status_.emplace(absl::StatusCode::kCancelled, "");
    RunContained([this] { final_status_ = absl::CancelledError("the client ended the call"); });
    if (sent_status_.has_value()) final_status_ = sent_status_;
  }
  if (context_.log == nullptr) return;
  if (rpc_.is_logged != nullptr) *rpc_.is_logged = true;
  RunContained([this, is_cancelled] {
    RequestLogEntry entry = {method_,
                             rpc_.tenant.name,
                             *final_status_,
                             SteadyNow() - start_,
                             std::move(final_result_),
                             rpc_.id.text,
                             rpc_.trace};
    if (!is_cancelled) return context_.log->Write(entry);
    due_log_ = std::move(entry);
  });
}

void EngineCall::NoteUnsent(std::optional<GenerationResult> result) {
  if (due_log_.has_value()) due_log_->result = std::move(result);
}

void EngineCall::Finish(const absl::Status& status, std::optional<GenerationResult> result) {
  final_status_ = status;
  final_result_ = std::move(result);
  std::exchange(stream_, nullptr)->Finish(status);
}

void EngineCall::WriteAnswer(const std::string& bytes) {
  if (bytes.size() > kMaxAnswerBytes) {
    link_.Cancel();
    return Finish(AnswerTooLong(bytes.size()), std::nullopt);
  }
  if (!bytes.empty()) stream_->Write(bytes);
}

bool EngineCall::BeginSmall(const std::string& message) {
  bool goes_on = false;
  const bool has_run = RunContained([&] {
    if (!ReadOrRefuse(message)) return;
    goes_on = !submission_->is_quick;
    if (!goes_on) SubmitOrRefuse();
  });
  if (!has_run) Refuse(OutOfMemory());
  return !goes_on;
}

void EngineCall::Begin(const std::string& message) {
  const bool has_run = RunContained([this, &message] {
    if (link_.is_cancelled()) return Refuse(absl::CancelledError("cancelled"));
    if (submission_.has_value() || ReadOrRefuse(message)) SubmitOrRefuse();
  });
  if (!has_run) Refuse(OutOfMemory());
}

bool EngineCall::ReadOrRefuse(const std::string& message) {
  auto submission = Read(message);
  if (submission.ok()) {
    submission_ = *std::move(submission);
  } else {
    Refuse(submission.status());
  }
  return submission.ok();
}

void EngineCall::SubmitOrRefuse() {
  auto ids = std::exchange(submission_, std::nullopt)->submit();
  if (!ids.ok()) return Refuse(ids.status());
  link_.Submitted(*std::move(ids));
}

void EngineCall::Refuse(const absl::Status& status) {
  Metrics* const metrics = context_.service.options().metrics;
  if (metrics != nullptr) RunContained([&] { metrics->CountRefusal(status.code()); });
  RunInTheEnd([&] { SetEnd(status, std::nullopt); });
  context_.deliveries.Flush();
}

void EngineCall::Deliver() {
  context_.deliveries.Add(loop_, [call = shared_from_this()] { call->Advance(); });
}

void EngineCall::Advance() {
  if (RunContained([this] { Send(); })) return;
  RunInTheEnd([this] { link_.Cancel(); });
  if (stream_ != nullptr) Finish(OutOfMemory(), std::nullopt);
}

absl::StatusOr<EngineCall::Submission> StreamCall::Read(const std::string& message) {
  LK_ASSIGN_OR_RETURN(GenerationRequest request, codec_->Read(message));
  SetCaller(request);
  return Submission{
      IsQuick(request, context_.service.options().defaults), [this, request = std::move(request)] {
        return SubmitGeneration<StreamListener>(
            context_.service, request, std::static_pointer_cast<StreamCall>(shared_from_this()));
      }};
}

void StreamCall::OnPromptLogprobs(std::vector<PromptLogprob> logprobs) {
  {
    absl::MutexLock lock(&mutex_);
    prompt_logprobs_ = std::move(logprobs);
  }
  Deliver();
}

SinkAnswer StreamCall::OnDelta(v1::ChoiceDelta delta) {
  auto self = std::static_pointer_cast<StreamCall>(shared_from_this());
  {
    absl::MutexLock lock(&mutex_);
    if (is_stalled_ || status_.has_value()) return SinkAnswer::kCancel;
    queue_.AddDelta(std::move(delta));
    if (queue_.n_tokens() < kPauseTokens) {
      // A queue that has more already waits for its turn or its reader.
      if (queue_.n_deltas() == n_awaited_) {
        Deliver();
        n_awaited_ = static_cast<size_t>(context_.stream_interval);
      }
      return SinkAnswer::kContinue;
    }
    if (paused_.has_value()) return SinkAnswer::kPause;
    paused_ = SteadyNow();
  }
  if (Metrics* metrics = context_.service.options().metrics) metrics->AddPausedStreams(1);
  context_.paused_calls->Add(std::move(self));
  return SinkAnswer::kPause;
}

void StreamCall::EndPause() {
  if (!paused_.has_value()) return;
  paused_.reset();
  if (Metrics* metrics = context_.service.options().metrics) metrics->AddPausedStreams(-1);
}

void StreamCall::EndIfStalled(absl::Time stalled_since) {
  {
    absl::MutexLock lock(&mutex_);
    if (!paused_.has_value() || *paused_ > stalled_since) return;
    is_stalled_ = true;
  }
  link_.Cancel();
}

void StreamCall::OnEnd(const GenerationResult& result) {
  RunInTheEnd([&] {
    v1::FinalEvent final_event = ToProto(result);
    absl::MutexLock lock(&mutex_);
    queue_.AddFinal(std::move(final_event));
  });
  RunInTheEnd([&] { SetEnd(result.engine.status, result); });
}

void StreamCall::SetEnd(const absl::Status& status, std::optional<GenerationResult> result) {
  {
    absl::MutexLock lock(&mutex_);
    EndPause();
    status_ = is_stalled_ ? StalledReader(context_.stall_timeout) : status;
    result_ = std::move(result);
  }
  context_.paused_calls->Remove(std::static_pointer_cast<StreamCall>(shared_from_this()));
  Deliver();
}

std::optional<v1::GenerateEvent> StreamCall::TakeEvent() {
  std::optional<std::vector<PromptLogprob>> logprobs;
  {
    absl::MutexLock lock(&mutex_);
    logprobs = std::exchange(prompt_logprobs_, std::nullopt);
    if (!logprobs.has_value()) {
      if (queue_.empty()) return std::nullopt;
      return queue_.Take();
    }
  }
  return EventOf(ToProto(*logprobs, context_.service.tokenizer()));
}

// The lock is free while events are written, as the engine delivers tokens under it.
void StreamCall::Send() {
  while (stream_ != nullptr && stream_->unsent_bytes() < kMaxUnsentBytes) {
    const std::optional<v1::GenerateEvent> event = TakeEvent();
    WriteAnswer(event.has_value() ? codec_->Write(*event) : codec_->Flush());
    if (stream_ != nullptr && codec_->n_kept_bytes() > kMaxAnswerBytes) {
      link_.Cancel();
      Finish(AnswerTooLong(codec_->n_kept_bytes()), std::nullopt);
    }
    if (!event.has_value()) break;
  }
  std::optional<absl::Status> end;
  std::optional<GenerationResult> result;
  bool resumes = false;
  {
    absl::MutexLock lock(&mutex_);
    if (stream_ != nullptr && queue_.empty() && !prompt_logprobs_.has_value() &&
        status_.has_value()) {
      end = status_;
      result = std::move(result_);
    }
    resumes = paused_.has_value() && queue_.n_tokens() < kResumeTokens;
    if (resumes) EndPause();
  }
  if (end.has_value()) Finish(*end, std::move(result));
  if (!resumes) return;
  context_.paused_calls->Remove(std::static_pointer_cast<StreamCall>(shared_from_this()));
  link_.Resume();
}

void UnaryEngineCall::SetEnd(const absl::Status& status, std::optional<GenerationResult> result) {
  {
    absl::MutexLock lock(&mutex_);
    status_ = status;
    result_ = std::move(result);
  }
  Deliver();
}

void UnaryEngineCall::Send() {
  absl::MutexLock lock(&mutex_);
  if (stream_ == nullptr || !status_.has_value()) return;
  if (status_->ok()) WriteAnswer(TakeResponse());
  if (stream_ != nullptr) Finish(*status_, std::move(result_));
}

std::string GenerateCall::TakeResponse() {
  if (prompt_logprobs_.has_value()) {
    *response_.mutable_prompt_logprobs() =
        ToProto(*std::exchange(prompt_logprobs_, std::nullopt), context_.service.tokenizer());
  }
  return codec_->Write(response_);
}

absl::StatusOr<EngineCall::Submission> GenerateCall::Read(const std::string& message) {
  LK_ASSIGN_OR_RETURN(GenerationRequest request, codec_->Read(message));
  SetCaller(request);
  return Submission{
      IsQuick(request, context_.service.options().defaults), [this, request = std::move(request)] {
        return SubmitGeneration<UnaryListener>(
            context_.service, request, std::static_pointer_cast<GenerateCall>(shared_from_this()));
      }};
}

absl::StatusOr<EngineCall::Submission> ScoreCall::Read(const std::string& message) {
  LK_ASSIGN_OR_RETURN(ScoreRequest request, codec_->Read(message));
  SetCaller(request);
  return Submission{false, [this, request = std::move(request)] {
                      auto self = std::static_pointer_cast<ScoreCall>(shared_from_this());
                      return context_.service.Score(
                          request, [self](absl::StatusOr<ScoreResult> result) {
                            if (result.ok()) {
                              RunInTheEnd([&] { self->response_ = ToProto(*result); });
                            }
                            RunInTheEnd([&] { self->SetEnd(result.status(), std::nullopt); });
                          });
                    }};
}

void PausedCalls::Add(std::shared_ptr<StreamCall> call) {
  absl::MutexLock lock(&mutex_);
  calls_.insert(std::move(call));
}

void PausedCalls::Remove(const std::shared_ptr<StreamCall>& call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

void PausedCalls::EndStalled(absl::Time stalled_since) {
  std::vector<std::shared_ptr<StreamCall>> calls;
  {
    absl::MutexLock lock(&mutex_);
    calls.assign(calls_.begin(), calls_.end());
  }
  for (const std::shared_ptr<StreamCall>& call : calls) call->EndIfStalled(stalled_since);
}

MakeRpcHandler StreamHandler(const GenerationContext& context, std::string method,
                             MakeGenerationCodec make_codec) {
  return HandlerOf<StreamCall>(context, std::move(method), std::move(make_codec));
}

MakeRpcHandler GenerateHandler(const GenerationContext& context, std::string method,
                               MakeGenerationCodec make_codec) {
  return HandlerOf<GenerateCall>(context, std::move(method), std::move(make_codec));
}

MakeRpcHandler ScoreHandler(const GenerationContext& context, std::string method,
                            MakeScoreCodec make_codec) {
  return HandlerOf<ScoreCall>(context, std::move(method), std::move(make_codec));
}

}  // namespace lowkey
