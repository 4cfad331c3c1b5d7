#include "engine/runtime/engine.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"
#include "engine/loader/mapped_file.h"
#include "engine/runtime/engine_impl.h"
#include "engine/runtime/prefix_files/model_space.h"
#include "engine/runtime/request_check.h"

namespace lowkey {
namespace {

Scheduler::Options SchedulerOptionsOf(const EngineOptions& options, const ModelRunner& runner) {
  Scheduler::Options out;
  out.max_running_seqs = options.max_running_seqs;
  out.max_batch_tokens = runner.max_rows();
  out.cache_bytes = runner.cache_budget_bytes();
  out.max_waiting_requests = options.max_queued_requests;
  out.max_waiting_prompt_tokens = options.max_queued_prompt_tokens;
  return out;
}

// Requests that must have ended before the share of max_new_tokens that they used is believed.
constexpr int64_t kMinEnded = 16;
// An admitted request may wait this many times EngineOptions::max_wait: forecasts err.
constexpr double kWaitSlack = 1.2;
constexpr absl::Duration kRounding = absl::Milliseconds(1);
constexpr absl::Duration kShortestRetry = absl::Milliseconds(100);

// On one core the worker would take from the step what it saves after it.
bool BeginsMasks(const EngineOptions& options, const ModelRunner& runner) {
  return options.begins_masks.value_or(runner.n_threads() > 1);
}

}  // namespace

EngineImpl::EngineImpl(std::unique_ptr<ModelRunner> runner, const EngineOptions& options,
                       std::unique_ptr<PrefixFiles> files, std::string file_space)
    : runner_(std::move(runner)),
      max_wait_(options.max_wait),
      longest_wait_(options.max_wait * kWaitSlack),
      keeps_prefixes_(options.keeps_prefixes),
      may_run_ahead_(options.runs_ahead),
      jumps_ahead_(options.jumps_ahead && runner_->VerifiesDrafts()),
      begins_masks_(BeginsMasks(options, *runner_)),
      after_delivery_(options.after_delivery),
      scheduler_(WithCallbacks(SchedulerOptionsOf(options, *runner_))),
      max_mixed_rows_(runner_->max_rows()),
      mask_budget_(options.mask_work_per_step),
      prefixes_(runner_->n_caches()),
      file_space_(std::move(file_space)),
      files_(std::move(files)),
      pace_(options.step_target, runner_->max_rows()) {
  runner_->SetReclaimer([this](size_t cache) { return Reclaim(cache); });
  const int32_t context = runner_->config().context_tokens;
  limits_.context_tokens =
      options.context_tokens > 0 ? std::min(options.context_tokens, context) : context;
  limits_.max_running_seqs = options.max_running_seqs;
  limits_.cache_bytes = runner_->cache_budget_bytes();
  counters_.cache_bytes_total = limits_.cache_bytes;
  counters_.weight_bytes = runner_->weight_bytes();
  counters_.dtype = runner_->weights_name();
  counters_.processor = runner_->processor();
  counters_.n_threads = runner_->n_threads();
  counters_.page_tokens = kPageTokens;
  counters_.keeps_prefixes = keeps_prefixes_;
  stats_ = counters_;
  if (files_ != nullptr) {
    files_->Start(
        [this](std::list<PrefixFiles::Found> found) {
          absl::MutexLock lock(&mutex_);
          found_.splice(found_.end(), found);
        },
        limits_.cache_bytes / 4);
  }
  thread_ = std::thread([this] { Run(); });
}

Scheduler::Options EngineImpl::WithCallbacks(Scheduler::Options options) {
  options.cached_rows = [this](uint64_t id) { return RestorePrefix(*live_.at(id)); };
  options.drafts = [this](uint64_t id, int32_t choice, int64_t most) {
    return Draft(*live_.at(id), choice, most);
  };
  return options;
}

EngineImpl::~EngineImpl() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
  files_.reset();  // its threads call the engine
}

SchedulerRequest EngineImpl::Scheduled(RequestId id, const EngineRequest& r) const {
  SchedulerRequest scheduled;
  scheduled.id = id;
  scheduled.n_prompt_tokens = static_cast<int64_t>(r.prompt.size());
  scheduled.n_choices = r.n;
  scheduled.max_new_tokens = r.max_new_tokens;
  scheduled.bytes = CacheBytesOf(r, *runner_);
  scheduled.tenant = r.tenant;
  scheduled.weight = r.tenant_weight;
  scheduled.priority = r.priority;
  const AttentionMechanism& mechanism = runner_->mechanism(r.attention.mechanism);
  scheduled.prompt_stops = keeps_prefixes_ ? PrefixStops(r, mechanism) : BlockStops(r, mechanism);
  return scheduled;
}

// Corrects a new request's forecast by how earlier forecasts erred. While the ends of too few
// requests are known, the forecast ends at the first token.
Forecast EngineImpl::Corrected(const Forecast& forecast) const {
  const absl::Time now = SteadyNow();
  Forecast corrected =
      AfterIdling(forecast_errors_.Correct(forecast, now), now - step_cost_.noted());
  if (stats_.n_finished_requests < kMinEnded) corrected.end = corrected.first_token;
  return corrected;
}

absl::Status EngineImpl::EndsTooLate(absl::Time deadline, absl::Duration needed) {
  return absl::DeadlineExceededError(absl::StrCat(
      "deadline: in ", absl::FormatDuration(absl::Trunc(deadline - SteadyNow(), kRounding)),
      ", expected at least the ", absl::FormatDuration(absl::Trunc(needed, kRounding)),
      " that it would take now"));
}

// Refuses a request that would wait too long or end too late.
absl::Status EngineImpl::CheckForecast(const Forecast& forecast, absl::Time deadline) const {
  if (SteadyNow() + forecast.end > deadline) return EndsTooLate(deadline, forecast.end);
  if (forecast.wait <= max_wait_) return absl::OkStatus();
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "queue: a wait of ", absl::FormatDuration(absl::Trunc(forecast.wait, kRounding)),
          ", expected at most ", absl::FormatDuration(max_wait_))),
      std::max(forecast.wait - max_wait_, kShortestRetry));
}

// Forecasts a new request, once steps were measured, and refuses it where even a prompt of which
// the cache holds the most that it can would wait too long or end too late. The engine's thread
// knows what the cache holds (NoteCachedRows).
absl::Status EngineImpl::Foresee(RequestState& state, const SchedulerRequest& scheduled) {
  const std::optional<StepCost> cost = step_cost_.cost();
  if (!cost.has_value()) return absl::OkStatus();
  const int64_t n_most = keeps_prefixes_ ? PrefixCache::MostTokens(state) : 0;
  state.forecast = scheduler_.Predict(scheduled, n_most, *cost, max_mixed_rows_);
  state.is_forecast_final = n_most == 0;
  const Forecast best = Corrected(WithCachedShare(*state.forecast, 1));
  const absl::Time deadline = state.request.deadline;
  state.latest_start = deadline - (best.end - best.wait);
  const absl::Status status = CheckForecast(best, deadline);
  if (absl::IsResourceExhausted(status)) CountRefusal(QueueBound::kWait);
  return status;
}

absl::StatusOr<RequestId> EngineImpl::Submit(EngineRequest request, std::unique_ptr<Sink> sink) {
  Selection selection;
  LK_RETURN_IF_ERROR(ValidateAttentionOptions(request.attention));
  if (request.selection.has_value()) {
    LK_ASSIGN_OR_RETURN(
        selection, runner_->Select(*request.selection, request.attention,
                                   {static_cast<int64_t>(request.prompt.size()),
                                    std::max(0, request.max_new_tokens), std::max(1, request.n)},
                                   limits_.context_tokens));
    request.attention = selection.options;
  } else {
    request.attention = runner_->Resolve(request.attention);
  }
  LK_RETURN_IF_ERROR(CheckRequest(request, *runner_, limits_));
  // Memory is taken first: once the scheduler knows of a request, the request must be there. A
  // refused request is destroyed after the lock.
  std::list<std::unique_ptr<RequestState>> entry(1);
  absl::MutexLock lock(&mutex_);
  LK_RETURN_IF_ERROR(failure_);
  if (draining_ || stopping_) {
    return absl::UnavailableError("draining: admitted requests are finished, new ones refused");
  }
  const SchedulerRequest scheduled = Scheduled(next_id_, request);
  std::unique_ptr<RequestState>& state = entry.front();
  state =
      std::make_unique<RequestState>(next_id_, std::move(request), std::move(sink), SteadyNow());
  state->selection = std::move(selection);
  state->is_approximate = runner_->IsApproximate(state->request.attention);
  LK_RETURN_IF_ERROR(Foresee(*state, scheduled));
  if (const absl::Status status = scheduler_.Enqueue(scheduled); !status.ok()) {
    if (!absl::IsResourceExhausted(status)) return status;
    CountRefusal(scheduler_.is_full() ? QueueBound::kRequests : QueueBound::kPromptTokens);
    return WithRetryAfter(status, kShortestRetry);
  }
  inbox_.splice(inbox_.end(), entry);
  ++n_live_;
  ++n_sinks_;
  return next_id_++;
}

void EngineImpl::Cancel(RequestId id) {
  absl::MutexLock lock(&mutex_);
  cancels_.push_back(id);
}

// The engine takes it between steps: by then a pause of the step that runs now has been noted.
void EngineImpl::Resume(RequestId id) {
  absl::MutexLock lock(&mutex_);
  resumes_.push_back(id);
}

bool EngineImpl::Drain(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  const auto idle = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return n_sinks_ == 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), TimeUntil(deadline));
}

void EngineImpl::EndAll(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  end_all_ = status;
}

absl::Status EngineImpl::Health() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

EngineStats EngineImpl::Stats() const {
  absl::MutexLock lock(&mutex_);
  EngineStats stats = stats_;
  stats.n_waiting_requests = scheduler_.n_waiting();
  stats.n_running_requests = n_live_ - stats.n_waiting_requests;
  stats.n_refused_by_bound = n_refused_by_bound_;
  return stats;
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(std::shared_ptr<const Checkpoint> checkpoint,
                                                     const EngineOptions& options,
                                                     ProgressFn progress) {
  EngineOptions adjusted = options;
  adjusted.max_running_seqs = std::clamp(options.max_running_seqs, 1, 1024);
  adjusted.max_batch_tokens = std::max(options.max_batch_tokens, adjusted.max_running_seqs);
  const std::vector<std::shared_ptr<const MappedFile>> files = checkpoint->files;
  std::unique_ptr<PrefixFiles> prefix_files;
  if (!options.prefix_files.folder.empty() && options.keeps_prefixes && options.device == nullptr) {
    LK_ASSIGN_OR_RETURN(prefix_files, PrefixFiles::Open(options.prefix_files));
  }
  LK_ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(checkpoint, adjusted, std::move(progress)));
  for (const auto& file : files) LK_RETURN_IF_ERROR(file->CheckWhole());
  std::string file_space;
  if (prefix_files != nullptr) file_space = ModelSpace(*checkpoint, *runner, options);
  return std::make_unique<EngineImpl>(std::move(runner), adjusted, std::move(prefix_files),
                                      std::move(file_space));
}

}  // namespace lowkey
