// The engine's thread: takes what was submitted, and computes step after step.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/atp/principal_block.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine_impl.h"
#include "engine/runtime/guarded.h"

namespace lowkey {

void EngineImpl::Run() {
  while (TakeInbox()) {
    ExpireDeadlines();
    if (!live_.empty()) RunStep();
    GiveUpWaiting();
    absl::MutexLock lock(&mutex_);
    Publish();
  }
  FinishAll(absl::CancelledError("the engine is shutting down"));
}

// Whether the device did: then nothing that it computed can be used, and nothing more can be
// computed.
bool EngineImpl::HasFailed() {
  const absl::Status health = runner_->health();
  if (health.ok()) return false;
  const absl::Status failure = absl::UnavailableError(absl::StrCat("device: ", health.message()));
  {
    absl::MutexLock lock(&mutex_);
    failure_ = failure;
  }
  FinishAll(failure);
  return true;
}

void EngineImpl::FinishAll(const absl::Status& status) {
  while (!live_.empty()) Finish(live_.begin()->first, FinishReason::kCancelled, status);
}

// Takes what was submitted: the scheduler may name it from now on.
void EngineImpl::TakeArrivals() {
  for (auto& state : inbox_) {
    if (state->request.attention.mechanism == Mechanism::kAtp) {
      const AtpOptions& options = state->request.attention.atp;
      state->rank = static_cast<int32_t>(ShapeOf(runner_->geometry(), options).rank);
    }
    live_.emplace(state->id, std::move(state));
  }
  inbox_.clear();
}

// Waits while there is nothing to do; false when the engine stops.
bool EngineImpl::TakeInbox() {
  std::vector<RequestId> cancels;
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
    TakeArrivals();
    cancels.swap(cancels_);
    for (RequestId id : resumes_) scheduler_.SetPaused(id, false);
    resumes_.clear();
    end_all.swap(end_all_);
    stopping = stopping_;
  }
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
    absl::Time deadline = state->request.deadline;
    if (!state->started.has_value()) {
      // Nothing is computed for what would be cut.
      deadline = std::min(deadline, state->latest_start);
      next_deadline_ = std::min(next_deadline_, state->submitted + longest_wait_);
    }
    if (deadline <= now) expired.push_back(id);
    next_deadline_ = std::min(next_deadline_, deadline);
  }
  for (RequestId id : expired) {
    Finish(id, FinishReason::kDeadline, absl::DeadlineExceededError("deadline exceeded"));
  }
}

// After a step, so that everybody had the chance of one.
void EngineImpl::GiveUpWaiting() {
  const absl::Time latest = absl::Now() - longest_wait_;
  std::vector<RequestId> tired;
  for (const auto& [id, state] : live_) {
    if (!state->started.has_value() && state->submitted < latest) tired.push_back(id);
  }
  for (RequestId id : tired) {
    Finish(id, FinishReason::kError,
           WithRetryAfter(
               absl::ResourceExhaustedError(absl::StrCat(
                   "queue: waited ", absl::FormatDuration(longest_wait_), " and was not served")),
               max_wait_));
  }
}

ScheduledBatch EngineImpl::NextBatch() {
  absl::MutexLock lock(&mutex_);
  TakeArrivals();
  ScheduledBatch batch = scheduler_.NextBatch(pace_.max_rows());
  for (RequestId id : batch.preempted) live_.at(id)->ReleaseCache();
  is_all_paused_ = batch.rows.empty() && batch.preempted.empty();
  const auto suspect = std::find_if(
      batch.rows.begin(), batch.rows.end(),
      [this](const ScheduledRows& rows) { return live_.at(rows.request)->is_suspect; });
  if (suspect != batch.rows.end()) {
    std::erase_if(batch.rows, [alone = suspect->request](const ScheduledRows& rows) {
      return rows.request != alone;
    });
  }
  return batch;
}

void EngineImpl::RunStep() {
  const ScheduledBatch batch = NextBatch();
  if (batch.rows.empty()) return;
  const absl::Time now = absl::Now();
  const bool is_mixed = IsMixed(batch.rows);
  int64_t n_rows = 0;
  for (const ScheduledRows& rows : batch.rows) {
    n_rows += rows.n_rows;
    RequestState& state = *live_.at(rows.request);
    if (!state.started.has_value()) state.started = now;
  }
  absl::Status status;
  const absl::Status thrown = Guarded([&] { status = ComputeBatch(batch.rows); });
  if (!thrown.ok() && runner_->health().ok()) return ComputeAlone(batch.rows, thrown);
  if (HasFailed()) return;
  if (!status.ok()) {
    // Reservations cover every step, so this is the machine's own memory: the newest request gives
    // way.
    Finish(batch.rows.back().request, FinishReason::kError, absl::InternalError(status.message()));
    return;
  }
  EndSuspicion(batch.rows);
  ++counters_.n_steps;
  {
    absl::MutexLock lock(&mutex_);
    scheduler_.Commit(batch);
    Publish();  // whoever reads a token finds what it took in Stats
  }
  ConsumeLogits(batch.rows);
  const absl::Duration took = absl::Now() - now;
  if (is_mixed) pace_.Note(n_rows, took);
  absl::MutexLock lock(&mutex_);
  step_cost_.Note(n_rows, took);
  max_mixed_rows_ = pace_.max_rows();
}

// The step threw and has left its sequences half-written. What it did is dropped as if all of them
// had been preempted; whose fault it was shows when each is computed alone.
void EngineImpl::ComputeAlone(const std::vector<ScheduledRows>& batch, const absl::Status& thrown) {
  std::set<RequestId> ids;
  for (const ScheduledRows& rows : batch) ids.insert(rows.request);
  if (ids.size() == 1) return Finish(*ids.begin(), FinishReason::kError, thrown);
  absl::MutexLock lock(&mutex_);
  for (RequestId id : ids) {
    scheduler_.Preempt(id);
    live_.at(id)->ReleaseCache();
    live_.at(id)->is_suspect = true;
  }
}

// Of a request whose every choice came as far in this step as it had been.
void EngineImpl::EndSuspicion(const std::vector<ScheduledRows>& batch) {
  const auto n_done = std::count_if(batch.begin(), batch.end(),
                                    [](const ScheduledRows& rows) { return rows.samples; });
  RequestState& state = *live_.at(batch[0].request);
  if (n_done == state.n_unfinished()) state.is_suspect = false;
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
  LK_RETURN_IF_ERROR(runner_->Compute(step_rows_));
  for (const ScheduledRows& rows : batch) {
    const RequestState& state = *live_.at(rows.request);
    const int64_t end = rows.first_position + rows.n_rows;
    // Before Advance, which may drop what only the prompt's own rows read.
    const auto n_prompt = static_cast<int64_t>(state.request.prompt.size());
    const PrefixReach reach = runner_->mechanism(state.request.attention.mechanism).prefix_reach();
    if (end == n_prompt || (end < n_prompt && IsPrefixStop(state.request, reach, end))) {
      SavePrefix(state, end);
    }
  }
  runner_->Advance();
  for (const ScheduledRows& rows : batch) {
    RequestState& state = *live_.at(rows.request);
    state.NotePeak(runner_->page_bytes());
    const int64_t end = rows.first_position + rows.n_rows;
    const bool ends_prompt = end == static_cast<int64_t>(state.request.prompt.size());
    if (ends_prompt && state.is_forked()) state.Fork(config().vocab_size);  // once more
  }
  return absl::OkStatus();
}

// What others that begin alike may continue from.
void EngineImpl::SavePrefix(const RequestState& state, int64_t n_computed) {
  if (!keeps_prefixes_) return;
  // What cannot be saved will be computed.
  (void)Guarded([&] {
    prefixes_.Save(state, runner_->mechanism(state.request.attention.mechanism), n_computed);
  });
}

// Called by the scheduler when it admits a request: the rows of its prompt that are there.
int64_t EngineImpl::RestorePrefix(RequestState& state) {
  if (!keeps_prefixes_) return 0;
  int64_t n_tokens = 0;
  if (!Guarded([&] { n_tokens = prefixes_.Restore(state); }).ok()) state.ReleaseCache();
  if (state.started.has_value()) return n_tokens;  // preempted: the caller was told already
  state.n_cached_tokens = static_cast<int32_t>(n_tokens);
  counters_.n_prefix_tokens += n_tokens;
  return n_tokens;
}

// What a device is to draw. A row that ends the prompt forks it: every choice draws from it.
RowRequest EngineImpl::RequestOf(const WantedRow& wanted) {
  const auto found = live_.find(wanted.rows->request);
  if (found == live_.end()) return {};  // ended by an earlier row of this step
  RequestState& state = *found->second;
  const auto n_prompt = static_cast<int64_t>(state.request.prompt.size());
  if (wanted.position + 1 < n_prompt) return {{}, state.PromptTokenAfter(wanted.position)};
  if (wanted.position + 1 == n_prompt) state.Fork(config().vocab_size);
  RowRequest request;
  if (state.request.max_new_tokens == 0) return request;
  for (int32_t c = 0; c < state.request.n; ++c) {
    if (wanted.position + 1 > n_prompt && c != wanted.rows->choice) continue;
    request.samplers.push_back(&*state.choices[c].sampler);
  }
  return request;
}

void EngineImpl::ConsumeLogits(const std::vector<ScheduledRows>& batch) {
  std::vector<WantedRow> wanted;
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
  const auto ask = [&](size_t i) {
    RowRequest request;
    const absl::Status status = Guarded([&] { request = RequestOf(wanted[i]); });
    if (!status.ok()) Finish(wanted[i].rows->request, FinishReason::kError, status);
    return request;
  };
  const absl::Status drawn = runner_->Draw(row_numbers, ask, [&](size_t i, RowTokens& tokens) {
    const absl::Status status = Guarded([&] { ConsumeRow(wanted[i], tokens); });
    if (!status.ok()) Finish(wanted[i].rows->request, FinishReason::kError, status);
  });
  if (drawn.ok() || HasFailed()) return;
  // Tokens that were to be drawn are not: whoever waits for one cannot go on.
  for (const WantedRow& row : wanted) {
    Finish(row.rows->request, FinishReason::kError, absl::InternalError(drawn.message()));
  }
}

void EngineImpl::ConsumeRow(const WantedRow& wanted, RowTokens& tokens) {
  const auto found = live_.find(wanted.rows->request);
  if (found == live_.end()) return;  // ended by an earlier row of this step
  RequestState& state = *found->second;
  const auto n_prompt = static_cast<int64_t>(state.request.prompt.size());
  if (wanted.position + 1 < n_prompt) {
    return state.AddPromptLogprob(wanted.position,
                                  tokens.Score(state.PromptTokenAfter(wanted.position)));
  }
  if (wanted.position + 1 > n_prompt) return SampleChoice(state, wanted.rows->choice, tokens);
  CompletePrompt(state);
  // The last choice to end takes the request with it.
  const int32_t n_choices = state.request.n;
  for (int32_t c = 0; c < n_choices && live_.contains(wanted.rows->request); ++c) {
    SampleChoice(state, c, tokens);
  }
}

void EngineImpl::CompletePrompt(RequestState& state) {
  counters_.n_prompt_tokens += static_cast<int64_t>(state.request.prompt.size());
  state.Fork(config().vocab_size);
  if (state.wants_prompt_logprobs()) {
    state.sink->OnPromptLogprobs(std::move(state.prompt_logprobs));
  }
}

void EngineImpl::SampleChoice(RequestState& state, int32_t choice, RowTokens& tokens) {
  ChoiceState& c = state.choices[choice];
  if (c.finish_reason.has_value()) return;
  if (state.request.max_new_tokens == 0) return FinishChoice(state, choice, FinishReason::kLength);
  absl::StatusOr<SampledToken> token = tokens.Sample(*c.sampler);
  if (!token.ok()) return Finish(state.id, FinishReason::kError, token.status());
  c.tokens.push_back(token->token);
  ++counters_.n_generated_tokens;
  state.last_token = absl::Now();
  if (!state.first_token.has_value()) state.first_token = state.last_token;

  const SinkAnswer answer = state.sink->OnToken(choice, *token);
  if (answer == SinkAnswer::kPause) {
    absl::MutexLock lock(&mutex_);
    scheduler_.SetPaused(state.id, true);
  }
  if (answer == SinkAnswer::kCancel) {
    return Finish(state.id, FinishReason::kCancelled, absl::CancelledError("the reader is gone"));
  }
  const std::vector<int32_t>& stops = state.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token->token) != stops.end()) {
    return FinishChoice(state, choice, FinishReason::kStopToken);
  }
  if (answer == SinkAnswer::kStop) return FinishChoice(state, choice, FinishReason::kStoppedBySink);
  if (static_cast<int32_t>(c.tokens.size()) >= state.request.max_new_tokens) {
    FinishChoice(state, choice, FinishReason::kLength);
  }
}

void EngineImpl::FinishChoice(RequestState& state, int32_t choice, FinishReason reason) {
  state.choices[choice].finish_reason = reason;
  {
    absl::MutexLock lock(&mutex_);
    scheduler_.FinishChoice(state.id, choice);
  }
  if (state.n_unfinished() == 0) Finish(state.id, reason, absl::OkStatus());
}

void EngineImpl::Finish(RequestId id, FinishReason reason, const absl::Status& status) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  const std::unique_ptr<RequestState> state = std::move(found->second);
  live_.erase(found);
  if (status.ok()) SavePrefix(*state, state->choices[0].cache.n_tokens);
  const FinalEvent event = state->MakeFinalEvent(reason, status, runner_->page_bytes());
  state->ReleaseCache();
  ++(status.ok() ? counters_.n_finished_requests : counters_.n_cancelled_requests);
  {
    // Before OnDone, so that whoever saw the end sees it in Stats too; and at once, so that no
    // request is counted as both running and finished.
    absl::MutexLock lock(&mutex_);
    scheduler_.Remove(id);
    NoteForecast(*state);
    Publish();
    --n_live_;
  }
  // A sink that fails here has had its last call all the same.
  (void)Guarded([&] { state->sink->OnDone(event); });
  state->sink.reset();
  absl::MutexLock lock(&mutex_);
  --n_sinks_;
}

// What the request's end tells of forecasts. One that was given up before its first token tells
// that it would have taken longer.
void EngineImpl::NoteForecast(const RequestState& state) {
  if (!state.forecast.has_value()) return;
  const absl::Duration lived = absl::Now() - state.submitted;
  if (state.first_token.has_value()) {
    forecast_errors_.NoteFirstToken(*state.forecast, *state.first_token - state.submitted);
  } else if (lived > forecast_errors_.Correct(*state.forecast).first_token) {
    forecast_errors_.NoteFirstToken(*state.forecast, lived);
  }
  const auto n_gaps = static_cast<int64_t>(state.choices[0].tokens.size()) - 1;
  if (n_gaps < 1) return;
  forecast_errors_.NoteNextToken(*state.forecast,
                                 (*state.last_token - *state.first_token) / n_gaps);
}

void EngineImpl::Publish() {
  int64_t held_bytes = 0;
  for (const auto& [id, state] : live_) held_bytes += state->held_bytes();
  const int64_t used_bytes = runner_->used_cache_bytes();
  // Pages that requests share count once.
  counters_.cache_bytes_used = std::min(held_bytes, used_bytes);
  counters_.cache_bytes_prefix = used_bytes - counters_.cache_bytes_used;
  counters_.n_preemptions = scheduler_.n_preemptions();
  stats_ = counters_;
}

}  // namespace lowkey
