#ifndef LOWKEY_ENGINE_RUNTIME_ENGINE_IMPL_H_
#define LOWKEY_ENGINE_RUNTIME_ENGINE_IMPL_H_

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_runner.h"
#include "engine/runtime/prefix_cache.h"
#include "engine/runtime/prefix_files/prefix_files.h"
#include "engine/runtime/request_state.h"
#include "engine/sampler/mask_budget.h"
#include "engine/sampler/mask_worker.h"
#include "engine/scheduler/forecast.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/step_pace.h"

namespace lowkey {

// The engine has two sides: calls from any thread (engine.cc) leave requests behind a mutex, and
// one thread (engine_loop.cc, engine_step.cc, engine_prefixes.cc, engine_masks.cc) computes step
// after step.
class EngineImpl : public Engine {
 public:
  // `files` may be null; file_space names model and program for its spaces.
  EngineImpl(std::unique_ptr<ModelRunner> runner, const EngineOptions& options,
             std::unique_ptr<PrefixFiles> files, std::string file_space);
  ~EngineImpl() override;

  absl::StatusOr<RequestId> Submit(EngineRequest request, std::unique_ptr<Sink> sink) override;
  void Cancel(RequestId id) override;
  void Resume(RequestId id) override;
  bool Drain(absl::Time deadline) override;
  void EndAll(const absl::Status& status) override;
  EngineStats Stats() const override;
  void SetProfile(SelectionProfile profile) override { runner_->SetProfile(std::move(profile)); }
  CostTable Costs(const CostQuery& query) const override {
    return runner_->Costs(query, limits_.context_tokens);
  }
  absl::StatusOr<std::vector<CacheBytes>> BytesByLength(
      const AttentionOptions& options, absl::Span<const int64_t> lengths) const override {
    return runner_->BytesByLength(options, lengths);
  }
  AttentionOptions Resolve(const AttentionOptions& options) const override {
    return runner_->Resolve(options);
  }
  absl::Status Health() const override;
  const ModelConfig& config() const override { return runner_->config(); }
  EngineLimits limits() const override { return limits_; }
  std::vector<MechanismInfo> mechanisms() const override { return runner_->mechanisms(); }

 private:
  using LiveRequests = std::map<RequestId, std::unique_ptr<RequestState>>;

  Scheduler::Options WithCallbacks(Scheduler::Options options);
  SchedulerRequest Scheduled(RequestId id, const EngineRequest& request) const;
  Forecast Corrected(const Forecast& forecast) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckForecast(const Forecast& forecast, absl::Time deadline) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::Status EndsTooLate(absl::Time deadline, absl::Duration needed);
  absl::Status Foresee(RequestState& state, const SchedulerRequest& scheduled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The engine's thread.
  void Run();
  void TakeArrivals() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteCachedRows(RequestState& state, bool is_final) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeInbox();
  void FinishAll(const absl::Status& status);
  RequestState* FindLive(RequestId id);
  bool HasFailed();
  void ExpireDeadlines();
  void GiveUpWaiting();
  // A row whose logits a request wants.
  struct WantedRow {
    RequestId request = 0;
    int32_t choice = 0;
    int64_t position = 0;
    // Set: the token at the position is a draft. The row counts if the draft was right.
    std::optional<int32_t> draft = std::nullopt;
  };
  // A queued step and the results that it still owes its requests.
  struct Step {
    std::vector<WantedRow> wanted;
    absl::StatusOr<Drawing> drawing = Drawing();
    // On a device: the number of each choice's token among those drawn.
    absl::flat_hash_map<std::pair<RequestId, int32_t>, int64_t> numbers;
    int64_t n_rows = 0;
    bool is_mixed = false;
    absl::Time started;
  };
  ScheduledBatch NextBatch();
  bool RunsAhead(const ScheduledBatch& batch) const;
  static absl::Span<const int32_t> DraftsOf(const RequestState& state, const ScheduledRows& rows);
  static bool IsPending(const RequestState& state, int32_t choice, int64_t position);
  void ReleaseCaches(const std::vector<RequestId>& ids);
  void RunStep();
  std::optional<Step> QueueStep(const std::vector<ScheduledRows>& batch);
  bool IsMixed(const std::vector<ScheduledRows>& batch) const;
  void NoteStart(const std::vector<ScheduledRows>& batch);
  void TakeOutUnready(std::vector<ScheduledRows>& batch);
  void BeginMasks(const std::vector<ScheduledRows>& batch);
  bool HasDraftsMask(RequestState& state, int32_t choice);
  void EndSuspicion(const std::vector<ScheduledRows>& batch);
  void ComputeAlone(const std::vector<ScheduledRows>& batch, const absl::Status& thrown);
  absl::Status ComputeBatch(const std::vector<ScheduledRows>& batch);
  void FillStepRows(const std::vector<ScheduledRows>& batch);
  void SavePrefixAt(const RequestState& state, int64_t n_computed);
  void SavePrefix(const RequestState& state, int64_t n_computed);
  int64_t RestorePrefix(RequestState& state);
  std::string FileSpace(const EngineRequest& request) const;
  void WriteFiles(const RequestState& state, int64_t n_computed);
  bool ReadFiles(const RequestState& state, const PrefixFiles::Found* coming);
  void TakeFound();
  void TakeAnswer(RequestState& state, const PrefixFiles::Found& found);
  void EndReading(RequestState& state);
  void EndSilentReads();
  void Extend(const RequestState& state, const PrefixFiles::Found& found);
  bool Reclaim(size_t cache);
  PrefixCache& PrefixesFor(const EngineRequest& request) {
    return prefixes_[runner_->CacheOf(request.attention)];
  }
  void QueueDraw(const std::vector<ScheduledRows>& batch, Step& step);
  void ForkAt(const WantedRow& wanted);
  RowRequest RequestOf(const WantedRow& wanted);
  void Deliver();
  void NoteDelivery() const;
  void NoteTime(const Step& step);
  void CountRows(int64_t n_rows);
  int64_t Draft(RequestState& state, int32_t choice, int64_t most);
  bool KeepDraft(RequestState& state, const WantedRow& wanted);
  void ConsumeRow(const WantedRow& wanted, RowTokens& tokens);
  void CompletePrompt(RequestState& state);
  void SampleChoice(RequestState& state, int32_t choice, RowTokens& tokens);
  void FinishChoice(RequestState& state, int32_t choice, FinishReason reason);
  void Finish(RequestId id, FinishReason reason, const absl::Status& status);
  void NoteForecast(const RequestState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountRefusal(QueueBound bound) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++n_refused_by_bound_[static_cast<size_t>(bound)];
  }

  const std::unique_ptr<ModelRunner> runner_;
  EngineLimits limits_;
  const absl::Duration max_wait_, longest_wait_;
  const bool keeps_prefixes_, may_run_ahead_, jumps_ahead_, begins_masks_;
  const std::function<void()> after_delivery_;

  mutable absl::Mutex mutex_;
  std::list<std::unique_ptr<RequestState>> inbox_ ABSL_GUARDED_BY(mutex_);
  std::vector<RequestId> cancels_ ABSL_GUARDED_BY(mutex_), resumes_ ABSL_GUARDED_BY(mutex_);
  std::list<PrefixFiles::Found> found_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_all_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // the device's, for good
  RequestId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  int64_t n_live_ ABSL_GUARDED_BY(mutex_) = 0;   // submitted and not finished
  int64_t n_sinks_ ABSL_GUARDED_BY(mutex_) = 0;  // submitted, OnDone not yet returned
  EngineStats stats_ ABSL_GUARDED_BY(mutex_);
  std::array<int64_t, kNumQueueBounds> n_refused_by_bound_ ABSL_GUARDED_BY(mutex_) = {};
  Scheduler scheduler_ ABSL_GUARDED_BY(mutex_);
  StepCostMeter step_cost_ ABSL_GUARDED_BY(mutex_);
  ForecastErrors forecast_errors_ ABSL_GUARDED_BY(mutex_);
  int64_t max_mixed_rows_ ABSL_GUARDED_BY(mutex_) = 0;

  MaskBudget mask_budget_;  // of one step; outlives the worker's tasks
  MaskWorker mask_worker_;  // outlives the constraints of live_

  // Owned by the engine's thread.
  LiveRequests live_;
  std::vector<PrefixCache> prefixes_;  // by the number of their cache (Place::CacheOf)
  const std::string file_space_;
  std::unique_ptr<PrefixFiles> files_;  // holds pages of prefixes that it writes; may be null
  bool is_all_paused_ = false;          // the last step had no rows
  // The step whose tokens are not read yet; the next step may be queued before they are.
  std::optional<Step> pending_;
  absl::Time last_delivery_ = absl::InfinitePast();
  absl::Duration noted_mask_wait_;  // EngineStats::waited_for_masks at that time
  absl::Time next_deadline_ = absl::InfiniteFuture();
  StepPace pace_;
  EngineStats counters_;
  std::vector<int32_t> step_tokens_;
  std::vector<ModelRunner::Rows> step_rows_;

  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_ENGINE_IMPL_H_
