#include "engine/runtime/engine.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/kernels.h"
#include "engine/runtime/model_runner.h"
#include "engine/runtime/request_state.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/step_pace.h"

namespace lowkey {
namespace {

Scheduler::Options SchedulerOptionsOf(const EngineOptions& options, const Cache& cache) {
  Scheduler::Options out;
  out.max_running_seqs = std::clamp(options.max_running_seqs, 1, 1024);
  out.max_batch_tokens = std::max<int64_t>(options.max_batch_tokens, out.max_running_seqs);
  out.cache_bytes = cache.budget_bytes();
  out.max_waiting_requests = options.max_queued_requests;
  return out;
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, ", expected ", low, "..", high));
}

absl::Status CheckTokens(absl::string_view field, const std::vector<int32_t>& tokens,
                         int32_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    LK_RETURN_IF_ERROR(CheckRange(absl::StrCat(field, "[", i, "]"), tokens[i], 0, vocab_size - 1));
  }
  return absl::OkStatus();
}

class EngineImpl : public Engine {
 public:
  EngineImpl(std::unique_ptr<ModelRunner> runner, const EngineOptions& options);
  ~EngineImpl() override;

  absl::StatusOr<RequestId> Submit(EngineRequest request, std::unique_ptr<Sink> sink) override;
  void Cancel(RequestId id) override;
  void Resume(RequestId id) override;
  bool Drain(absl::Time deadline) override;
  void EndAll(const absl::Status& status) override;
  EngineStats Stats() const override;
  const ModelConfig& config() const override { return runner_->config(); }
  EngineLimits limits() const override { return limits_; }
  std::vector<MechanismInfo> mechanisms() const override { return runner_->mechanisms(); }

 private:
  using LiveRequests = std::map<RequestId, std::unique_ptr<RequestState>>;

  absl::Status CheckRequest(const EngineRequest& request) const;
  int64_t ReservedBytes(const EngineRequest& request) const;

  // The engine's thread.
  void Run();
  bool TakeInbox();
  void FinishAll(const absl::Status& status);
  void ExpireDeadlines();
  void RunStep();
  bool IsMixed(const std::vector<ScheduledRows>& batch) const;
  absl::Status ComputeBatch(const std::vector<ScheduledRows>& batch);
  void ConsumeLogits(const std::vector<ScheduledRows>& batch);
  void CompletePrompt(RequestState& state);
  void SampleChoice(RequestState& state, int32_t choice, absl::Span<const float> logits);
  void FinishChoice(RequestState& state, int32_t choice, FinishReason reason);
  void Finish(RequestId id, FinishReason reason, const absl::Status& status);
  void PublishStats();

  const std::unique_ptr<ModelRunner> runner_;
  EngineLimits limits_;
  const int32_t max_queued_requests_;
  const int64_t max_step_rows_;

  mutable absl::Mutex mutex_;
  std::deque<std::unique_ptr<RequestState>> inbox_ ABSL_GUARDED_BY(mutex_);
  std::vector<RequestId> cancels_ ABSL_GUARDED_BY(mutex_), resumes_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_all_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  RequestId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t n_live_ ABSL_GUARDED_BY(mutex_) = 0;     // submitted and not finished
  int64_t n_sinks_ ABSL_GUARDED_BY(mutex_) = 0;    // submitted, OnDone not yet returned
  int64_t n_waiting_ ABSL_GUARDED_BY(mutex_) = 0;  // submitted and not admitted
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);

  // Owned by the engine's thread.
  LiveRequests live_;
  Scheduler scheduler_;
  bool is_all_paused_ = false;  // the last step had no rows
  absl::Time next_deadline_ = absl::InfiniteFuture();
  StepPace pace_;
  EngineStats counters_;
  std::vector<int32_t> step_tokens_;
  std::vector<ModelRunner::Rows> step_rows_;

  std::thread thread_;
};

EngineImpl::EngineImpl(std::unique_ptr<ModelRunner> runner, const EngineOptions& options)
    : runner_(std::move(runner)),
      max_queued_requests_(options.max_queued_requests),
      max_step_rows_(SchedulerOptionsOf(options, runner_->cache()).max_batch_tokens),
      scheduler_(SchedulerOptionsOf(options, runner_->cache())),
      pace_(options.step_target, max_step_rows_) {
  const int32_t context = runner_->config().context_tokens;
  limits_.context_tokens =
      options.context_tokens > 0 ? std::min(options.context_tokens, context) : context;
  limits_.max_running_seqs =
      static_cast<int32_t>(SchedulerOptionsOf(options, runner_->cache()).max_running_seqs);
  limits_.cache_bytes = runner_->cache().budget_bytes();
  counters_.cache_bytes_total = limits_.cache_bytes;
  counters_.weight_bytes = runner_->weight_bytes();
  counters_.dtype = StorageName(runner_->storage());
  counters_.instruction_set = std::string(Kernels().name);
  counters_.n_threads = runner_->n_threads();
  stats_ = counters_;
  thread_ = std::thread([this] { Run(); });
}

EngineImpl::~EngineImpl() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

absl::Status EngineImpl::CheckRequest(const EngineRequest& r) const {
  const int32_t vocab = config().vocab_size;
  if (r.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: 0 tokens, expected at least 1");
  }
  LK_RETURN_IF_ERROR(CheckRange("max_new_tokens", r.max_new_tokens,
                                r.prompt_logprobs.has_value() ? 0 : 1,
                                std::numeric_limits<int32_t>::max()));
  LK_RETURN_IF_ERROR(CheckRange("n", r.n, 1, 8));
  if (r.prompt_logprobs.has_value()) {
    LK_RETURN_IF_ERROR(CheckRange("prompt_logprobs", *r.prompt_logprobs, 0, 20));
    LK_RETURN_IF_ERROR(CheckRange("prompt_logprobs_from", r.prompt_logprobs_from, 1,
                                  std::numeric_limits<int32_t>::max()));
  }
  LK_RETURN_IF_ERROR(CheckTokens("prompt", r.prompt, vocab));
  LK_RETURN_IF_ERROR(CheckTokens("stop_tokens", r.stop_tokens, vocab));
  LK_RETURN_IF_ERROR(ValidateSamplingOptions(r.sampling, vocab));
  LK_RETURN_IF_ERROR(ValidateAttentionOptions(r.attention));
  LK_ASSIGN_OR_RETURN(const AttentionMechanism* mechanism,
                      runner_->FindMechanism(r.attention.mechanism));
  LK_RETURN_IF_ERROR(mechanism->CheckAvailable(r.attention));
  const int64_t total = static_cast<int64_t>(r.prompt.size()) + r.max_new_tokens;
  if (total > limits_.context_tokens) {
    return absl::OutOfRangeError(
        absl::StrCat("prompt + max_new_tokens: ", r.prompt.size(), " + ", r.max_new_tokens, " = ",
                     total, " tokens, expected at most the context of ", limits_.context_tokens));
  }
  if (total > mechanism->max_tokens().value_or(total)) {
    return absl::OutOfRangeError(absl::StrCat(
        "prompt + max_new_tokens: ", total, " tokens, expected at most ", *mechanism->max_tokens(),
        " with mechanism ", std::string(MechanismName(r.attention.mechanism))));
  }
  const int64_t reserved = ReservedBytes(r);
  if (reserved > limits_.cache_bytes) {
    return absl::OutOfRangeError(absl::StrCat(
        "prompt + max_new_tokens: ", total, " tokens of ", r.n, " choices may need ", reserved,
        " bytes of cache, expected at most the whole cache of ", limits_.cache_bytes));
  }
  return absl::OkStatus();
}

int64_t EngineImpl::ReservedBytes(const EngineRequest& r) const {
  const auto n_prompt = static_cast<int64_t>(r.prompt.size());
  // The last token generated is never fed.
  const SequenceBound bound{n_prompt, n_prompt + std::max(0, r.max_new_tokens - 1), max_step_rows_};
  return r.n * runner_->mechanism(r.attention.mechanism).BoundBytes(r.attention, bound);
}

absl::StatusOr<RequestId> EngineImpl::Submit(EngineRequest request, std::unique_ptr<Sink> sink) {
  Selection selection;
  if (request.selection.has_value()) {
    LK_RETURN_IF_ERROR(ValidateAttentionOptions(request.attention));
    LK_ASSIGN_OR_RETURN(selection, runner_->Select(*request.selection, request.attention,
                                                   {static_cast<int64_t>(request.prompt.size()),
                                                    std::max(0, request.max_new_tokens)},
                                                   limits_.context_tokens));
    request.attention = selection.options;
  }
  LK_RETURN_IF_ERROR(CheckRequest(request));
  absl::MutexLock lock(&mutex_);
  if (draining_ || stopping_) {
    return absl::UnavailableError("draining: admitted requests are finished, new ones refused");
  }
  if (n_waiting_ >= max_queued_requests_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "queue: ", n_waiting_, " requests waiting, expected fewer than ", max_queued_requests_));
  }
  const RequestId id = next_id_++;
  inbox_.push_back(
      std::make_unique<RequestState>(id, std::move(request), std::move(sink), absl::Now()));
  inbox_.back()->selection = std::move(selection);
  ++n_live_;
  ++n_sinks_;
  ++n_waiting_;
  return id;
}

void EngineImpl::Cancel(RequestId id) {
  absl::MutexLock lock(&mutex_);
  cancels_.push_back(id);
}

// Taken between steps: a pause of the step that runs now has been noted by then.
void EngineImpl::Resume(RequestId id) {
  absl::MutexLock lock(&mutex_);
  resumes_.push_back(id);
}

bool EngineImpl::Drain(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return n_sinks_ == 0; };
  return mutex_.AwaitWithDeadline(absl::Condition(&idle), deadline);
}

void EngineImpl::EndAll(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  end_all_ = status;
}

EngineStats EngineImpl::Stats() const {
  absl::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  stats.n_waiting_requests = n_waiting_;
  stats.n_running_requests = n_live_ - n_waiting_;
  stats.cache_bytes_used = runner_->cache().used_bytes();
  return stats;
}

void EngineImpl::Run() {
  while (TakeInbox()) {
    ExpireDeadlines();
    if (!live_.empty()) RunStep();
    PublishStats();
  }
  FinishAll(absl::CancelledError("the engine is shutting down"));
  PublishStats();
}

void EngineImpl::FinishAll(const absl::Status& status) {
  while (!live_.empty()) Finish(live_.begin()->first, FinishReason::kCancelled, status);
}

// Waits while there is nothing to do; false when the engine stops.
bool EngineImpl::TakeInbox() {
  std::deque<std::unique_ptr<RequestState>> arrived;
  std::vector<RequestId> cancels, resumes;
  std::optional<absl::Status> end_all;
  bool stopping = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !inbox_.empty() || !cancels_.empty() || !resumes_.empty() ||
             end_all_.has_value();
    };
    if (live_.empty() || is_all_paused_) {
      mutex_.AwaitWithDeadline(absl::Condition(&work), next_deadline_);
    }
    arrived.swap(inbox_);
    cancels.swap(cancels_);
    resumes.swap(resumes_);
    end_all.swap(end_all_);
    stopping = stopping_;
  }
  for (auto& state : arrived) {
    const RequestId id = state->id;
    const EngineRequest& r = state->request;
    const absl::Status queued =
        scheduler_.Enqueue({id, static_cast<int64_t>(r.prompt.size()), r.n, ReservedBytes(r)});
    if (r.attention.mechanism == Mechanism::kAtp) {
      state->rank = static_cast<int32_t>(ShapeOf(runner_->geometry(), r.attention.atp).rank);
    }
    live_.emplace(id, std::move(state));
    if (!queued.ok()) Finish(id, FinishReason::kError, queued);
  }
  for (RequestId id : resumes) scheduler_.SetPaused(id, false);
  for (RequestId id : cancels) {
    Finish(id, FinishReason::kCancelled, absl::CancelledError("cancelled"));
  }
  if (end_all.has_value()) FinishAll(*end_all);
  return !stopping;
}

void EngineImpl::ExpireDeadlines() {
  const absl::Time now = absl::Now();
  std::vector<RequestId> expired;
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [id, state] : live_) {
    if (state->request.deadline <= now) expired.push_back(id);
    next_deadline_ = std::min(next_deadline_, state->request.deadline);
  }
  for (RequestId id : expired) {
    Finish(id, FinishReason::kDeadline, absl::DeadlineExceededError("deadline exceeded"));
  }
}

void EngineImpl::RunStep() {
  const std::vector<ScheduledRows> batch = scheduler_.NextBatch(pace_.max_rows());
  is_all_paused_ = batch.empty();
  if (batch.empty()) return;
  const absl::Time now = absl::Now();
  const bool is_mixed = IsMixed(batch);
  int64_t n_rows = 0;
  for (const ScheduledRows& rows : batch) {
    n_rows += rows.n_rows;
    RequestState& state = *live_.at(rows.request);
    if (!state.started.has_value()) {
      state.started = now;
      absl::MutexLock lock(&mutex_);
      --n_waiting_;
    }
  }
  if (const absl::Status status = ComputeBatch(batch); !status.ok()) {
    // Reservations cover every step, so this is the machine's own memory: the newest request gives
    // way.
    Finish(batch.back().request, FinishReason::kError, absl::InternalError(status.message()));
    return;
  }
  ++counters_.n_steps;
  scheduler_.Commit(batch);
  ConsumeLogits(batch);
  if (is_mixed) pace_.Note(n_rows, absl::Now() - now);
}

// Whether streams wait while somebody's prompt is computed.
bool EngineImpl::IsMixed(const std::vector<ScheduledRows>& batch) const {
  const auto is_decode = [this](const ScheduledRows& rows) {
    const EngineRequest& request = live_.at(rows.request)->request;
    return rows.first_position >= static_cast<int64_t>(request.prompt.size());
  };
  const auto n_decode = std::count_if(batch.begin(), batch.end(), is_decode);
  return n_decode > 0 && n_decode < static_cast<int64_t>(batch.size());
}

absl::Status EngineImpl::ComputeBatch(const std::vector<ScheduledRows>& batch) {
  step_tokens_.clear();
  step_rows_.clear();
  for (const ScheduledRows& rows : batch) {
    const RequestState& state = *live_.at(rows.request);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
      step_tokens_.push_back(state.TokenAt(rows.choice, rows.first_position + i));
    }
  }
  size_t at = 0;
  for (const ScheduledRows& rows : batch) {
    const auto n = static_cast<size_t>(rows.n_rows);
    step_rows_.push_back({&live_.at(rows.request)->choices[rows.choice].cache, rows.first_position,
                          absl::MakeConstSpan(step_tokens_).subspan(at, n)});
    at += n;
  }
  LK_RETURN_IF_ERROR(runner_->Step(step_rows_));
  for (const ScheduledRows& rows : batch) {
    live_.at(rows.request)->NotePeak(runner_->cache().page_bytes());
  }
  return absl::OkStatus();
}

void EngineImpl::ConsumeLogits(const std::vector<ScheduledRows>& batch) {
  // Rows whose logits somebody wants, and for whom.
  struct Wanted {
    const ScheduledRows* rows;
    int64_t position;
  };
  std::vector<Wanted> wanted;
  std::vector<int64_t> row_numbers;
  int64_t first_row = 0;
  for (const ScheduledRows& rows : batch) {
    const RequestState& state = *live_.at(rows.request);
    for (int64_t i = 0; i < rows.n_rows; ++i) {
      const int64_t position = rows.first_position + i;
      const bool scores = state.WantsPromptLogprob(position + 1);
      const bool samples = rows.samples && i + 1 == rows.n_rows;
      if (!scores && !samples) continue;
      wanted.push_back({&rows, position});
      row_numbers.push_back(first_row + i);
    }
    first_row += rows.n_rows;
  }
  runner_->Logits(row_numbers, [&](size_t i, absl::Span<const float> logits) {
    const auto found = live_.find(wanted[i].rows->request);
    if (found == live_.end()) return;  // ended by an earlier row of this step
    RequestState& state = *found->second;
    const auto n_prompt = static_cast<int64_t>(state.request.prompt.size());
    if (wanted[i].position + 1 < n_prompt)
      return state.AddPromptLogprob(wanted[i].position, logits);
    if (wanted[i].position + 1 > n_prompt)
      return SampleChoice(state, wanted[i].rows->choice, logits);
    CompletePrompt(state);
    // The last choice to end takes the request with it.
    const RequestId id = state.id;
    const int32_t n_choices = state.request.n;
    for (int32_t c = 0; c < n_choices && live_.contains(id); ++c) SampleChoice(state, c, logits);
  });
}

void EngineImpl::CompletePrompt(RequestState& state) {
  counters_.n_prompt_tokens += static_cast<int64_t>(state.request.prompt.size());
  state.Fork(config().vocab_size);
  if (state.wants_prompt_logprobs()) {
    state.sink->OnPromptLogprobs(std::move(state.prompt_logprobs));
  }
}

void EngineImpl::SampleChoice(RequestState& state, int32_t choice, absl::Span<const float> logits) {
  ChoiceState& c = state.choices[choice];
  if (c.finish_reason.has_value()) return;
  if (state.request.max_new_tokens == 0) return FinishChoice(state, choice, FinishReason::kLength);
  absl::StatusOr<SampledToken> token = c.sampler->Sample(logits);
  if (!token.ok()) return Finish(state.id, FinishReason::kError, token.status());
  c.last_token = token->token;
  ++c.n_generated;
  ++counters_.n_generated_tokens;
  state.last_token = absl::Now();
  if (!state.first_token.has_value()) state.first_token = state.last_token;

  const SinkAnswer answer = state.sink->OnToken(choice, *token);
  if (answer == SinkAnswer::kPause) scheduler_.SetPaused(state.id, true);
  if (answer == SinkAnswer::kCancel) {
    return Finish(state.id, FinishReason::kCancelled, absl::CancelledError("the reader is gone"));
  }
  const std::vector<int32_t>& stops = state.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token->token) != stops.end()) {
    return FinishChoice(state, choice, FinishReason::kStopToken);
  }
  if (answer == SinkAnswer::kStop) return FinishChoice(state, choice, FinishReason::kStoppedBySink);
  if (c.n_generated >= state.request.max_new_tokens) {
    FinishChoice(state, choice, FinishReason::kLength);
  }
}

void EngineImpl::FinishChoice(RequestState& state, int32_t choice, FinishReason reason) {
  state.choices[choice].finish_reason = reason;
  scheduler_.FinishChoice(state.id, choice);
  if (state.finished()) Finish(state.id, reason, absl::OkStatus());
}

void EngineImpl::Finish(RequestId id, FinishReason reason, const absl::Status& status) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const std::unique_ptr<RequestState> state = std::move(found->second);
  live_.erase(found);
  scheduler_.Remove(id);
  const FinalEvent event = state->MakeFinalEvent(reason, status, runner_->cache().page_bytes());
  state->ReleaseCache();
  ++(status.ok() ? counters_.n_finished_requests : counters_.n_cancelled_requests);
  {
    // Before OnDone, so that whoever saw the end sees it in Stats too; and at once, so that no
    // request is counted as both running and finished.
    absl::MutexLock lock(&mutex_);
    stats_ = counters_;
    --n_live_;
    if (!state->started.has_value()) --n_waiting_;
  }
  state->sink->OnDone(event);
  state->sink.reset();
  absl::MutexLock lock(&mutex_);
  --n_sinks_;
}

void EngineImpl::PublishStats() {
  absl::MutexLock lock(&mutex_);
  stats_ = counters_;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const std::string& model_directory,
                                                     const EngineOptions& options,
                                                     ProgressFn progress) {
  EngineOptions adjusted = options;
  adjusted.max_running_seqs = std::clamp(options.max_running_seqs, 1, 1024);
  adjusted.max_batch_tokens = std::max(options.max_batch_tokens, adjusted.max_running_seqs);
  LK_ASSIGN_OR_RETURN(auto runner,
                      ModelRunner::Create(model_directory, adjusted, std::move(progress)));
  return std::make_unique<EngineImpl>(std::move(runner), adjusted);
}

}  // namespace lowkey
