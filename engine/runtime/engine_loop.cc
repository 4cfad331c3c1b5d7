// The engine's thread: takes what was submitted, and computes step after step (engine_step.cc).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/retry_after.h"
#include "engine/runtime/engine_impl.h"
#include "engine/runtime/guarded.h"

namespace lowkey {
namespace {

// The longest wait for an answer from files. Then the prompt is computed.
constexpr absl::Duration kReadPatience = absl::Seconds(1);

}  // namespace

void EngineImpl::Run() {
  while (TakeInbox()) {
    ExpireDeadlines();
    EndSilentReads();
    NoteDelivery();
    if (!live_.empty() || pending_.has_value()) RunStep();
    GiveUpWaiting();
    NoteDelivery();
    absl::MutexLock lock(&mutex_);
    Publish();
  }
  FinishAll(absl::CancelledError("the engine is shutting down"));
  NoteDelivery();
}

void EngineImpl::NoteDelivery() const {
  if (after_delivery_ != nullptr) after_delivery_();
}

// Returns whether the device failed. Then no result of it can be used and no request goes on.
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

// Returns nullptr once the request has ended.
RequestState* EngineImpl::FindLive(RequestId id) {
  const auto found = live_.find(id);
  return found == live_.end() ? nullptr : found->second.get();
}

void EngineImpl::FinishAll(const absl::Status& status) {
  while (!live_.empty()) Finish(live_.begin()->first, FinishReason::kCancelled, status);
}

// Tells the scheduler how much of a waiting request's prompt the cache holds. When that is final,
// the request's forecast follows, and a request that would end too late has no time left to start.
void EngineImpl::NoteCachedRows(RequestState& state, bool is_final) {
  if (!keeps_prefixes_) return;
  int64_t n_cached = 0;  // without memory to look prefixes up, forecasts count all rows
  (void)Guarded([&] {
    n_cached = PrefixesFor(state.request).NumTokens(state);
    scheduler_.NoteCachedRows(state.id, n_cached);
  });
  if (!is_final || !state.forecast.has_value() || state.is_forecast_final) return;
  const double share = static_cast<double>(n_cached) / PrefixCache::MostTokens(state);
  state.forecast = WithCachedShare(*state.forecast, share);
  state.is_forecast_final = true;
  const Forecast corrected = Corrected(*state.forecast);
  const absl::Time deadline = state.request.deadline;
  const bool fits = state.submitted + corrected.end <= deadline;
  state.latest_start = deadline - (corrected.end - (fits ? corrected.wait : absl::ZeroDuration()));
}

// Takes submitted requests: from now on the scheduler may name them.
void EngineImpl::TakeArrivals() {
  for (auto& state : inbox_) {
    RequestState& arrived = *live_.emplace(state->id, std::move(state)).first->second;
    const bool is_reading = ReadFiles(arrived, nullptr);
    NoteCachedRows(arrived, !is_reading);
    next_deadline_ = std::min(next_deadline_, arrived.start_by());
    if (is_reading) {
      arrived.reads_since = SteadyNow();
      next_deadline_ = std::min(next_deadline_, *arrived.reads_since + kReadPatience);
    } else if (SteadyNow() < arrived.start_by()) {
      continue;
    }
    // It waits for its files, or for ExpireDeadlines.
    scheduler_.Park(arrived.id);
  }
  inbox_.clear();
}

// Waits while there is nothing to do; returns false when the engine stops.
bool EngineImpl::TakeInbox() {
  std::vector<RequestId> cancels;
  std::optional<absl::Status> end_all;
  bool stopping = false;
  {
    absl::MutexLock lock(&mutex_);
    const auto work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || !inbox_.empty() || !cancels_.empty() || !resumes_.empty() ||
             !found_.empty() || end_all_.has_value();
    };
    if (!pending_.has_value() && (live_.empty() || is_all_paused_)) {
      mutex_.AwaitWithTimeout(absl::Condition(&work), TimeUntil(next_deadline_));
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
  TakeFound();
  return !stopping;
}

void EngineImpl::ExpireDeadlines() {
  const absl::Time now = SteadyNow();
  std::vector<std::pair<RequestId, absl::Status>> expired;
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [id, state] : live_) {
    const absl::Time end = state->request.deadline;
    absl::Time deadline = end;
    if (!state->started.has_value()) {
      // Computing for a request that will miss its deadline is wasted.
      deadline = state->start_by();
      next_deadline_ = std::min(next_deadline_, state->submitted + longest_wait_);
    }
    if (deadline <= now) {
      expired.emplace_back(id, end <= now ? absl::DeadlineExceededError("deadline exceeded")
                                          : EndsTooLate(end, end - state->latest_start));
    }
    next_deadline_ = std::min(next_deadline_, deadline);
    if (state->reads_since.has_value()) {
      next_deadline_ = std::min(next_deadline_, *state->reads_since + kReadPatience);
    }
  }
  for (const auto& [id, status] : expired) Finish(id, FinishReason::kDeadline, status);
}

// Lets requests go on whose files do not come.
void EngineImpl::EndSilentReads() {
  if (files_ == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    if (!found_.empty()) return;  // a step was long, not the disk
  }
  const absl::Time latest = SteadyNow() - kReadPatience;
  for (const auto& [id, state] : live_) {
    if (state->reads_since.has_value() && *state->reads_since <= latest) EndReading(*state);
  }
}

// Runs after a step, so that every request had the chance of one.
void EngineImpl::GiveUpWaiting() {
  const absl::Time latest = SteadyNow() - longest_wait_;
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
  FinalEvent event;
  const AttentionMechanism& mechanism = runner_->mechanism(state->request.attention.mechanism);
  // The sink must have its last event, so this waits for memory where there is none: an exception
  // here would end the engine's thread and all requests with it.
  RunInTheEnd(
      [&] { event = state->MakeFinalEvent(reason, status, mechanism, runner_->page_bytes()); });
  state->ReleaseCache();
  ++(status.ok() ? counters_.n_finished_requests : counters_.n_cancelled_requests);
  {
    // Stats show the end before OnDone tells of it, and all counters change under one lock: no
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

// Learns from a request's end how far its forecast was off. A request that was given up before its
// first token would have taken longer than it lived.
void EngineImpl::NoteForecast(const RequestState& state) {
  if (!state.forecast.has_value()) return;
  const absl::Time now = SteadyNow();
  const absl::Duration lived = now - state.submitted;
  if (state.first_token.has_value()) {
    forecast_errors_.NoteFirstToken(*state.forecast, *state.first_token - state.submitted, now);
  } else if (lived > forecast_errors_.Correct(*state.forecast, now).first_token) {
    forecast_errors_.NoteFirstToken(*state.forecast, lived, now);
  }
  const std::optional<absl::Duration> gap = state.MeanGap();
  if (gap.has_value() && !state.was_paused) {
    forecast_errors_.NoteNextToken(*state.forecast, *gap, now);
  }
}

void EngineImpl::Publish() {
  int64_t held_bytes = 0;
  for (const auto& [id, state] : live_) held_bytes += state->held_bytes();
  const int64_t used_bytes = runner_->used_cache_bytes();
  // Pages that requests share count once.
  counters_.cache_bytes_used = std::min(held_bytes, used_bytes);
  counters_.cache_bytes_prefix = used_bytes - counters_.cache_bytes_used;
  counters_.n_preemptions = scheduler_.n_preemptions();
  if (files_ != nullptr) {
    const PrefixFiles::Stats files = files_->stats();
    counters_.n_prefix_file_bytes_read = files.n_bytes_read;
    counters_.n_prefix_file_bytes_written = files.n_bytes_written;
    counters_.n_prefix_file_errors = files.n_errors;
  }
  stats_ = counters_;
}

}  // namespace lowkey
