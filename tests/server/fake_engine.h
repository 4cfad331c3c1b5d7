#ifndef LOWKEY_TESTS_SERVER_FAKE_ENGINE_H_
#define LOWKEY_TESTS_SERVER_FAKE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// An engine that does what the test says: requests wait until the test feeds them tokens and
// finishes them. Cancel finishes a request with kCancelled at once, as a real engine does within a
// step. Thread-safe.
class FakeEngine : public Engine {
 public:
  explicit FakeEngine(int32_t vocab_size = 4096) {
    config_.vocab_size = vocab_size;
    config_.architecture = "LlamaForCausalLM";
    config_.bos_token = 1;
    config_.eos_tokens = {2};
    limits_ = {.context_tokens = 2048, .max_running_seqs = 4, .cache_bytes = 1 << 20};
  }

  ~FakeEngine() override {
    while (!ids().empty()) Cancel(ids().front());
  }

  absl::StatusOr<RequestId> Submit(EngineRequest request, std::unique_ptr<Sink> sink) override {
    absl::MutexLock lock(&mutex_);
    if (submit_error_.has_value()) return *submit_error_;
    const RequestId id = ++last_id_;
    requests_.emplace(id, Entry{std::move(request), std::move(sink), {}});
    return id;
  }

  void Cancel(RequestId id) override {
    Finish(id, FinishReason::kCancelled, absl::CancelledError("cancelled"));
  }

  void Resume(RequestId id) override {
    absl::MutexLock lock(&mutex_);
    resumed_.push_back(id);
  }

  bool Drain(absl::Time deadline) override {
    absl::MutexLock lock(&mutex_);
    submit_error_ = absl::UnavailableError("draining");
    return mutex_.AwaitWithDeadline(absl::Condition(this, &FakeEngine::IsIdle), deadline);
  }

  void EndAll(const absl::Status& status) override {
    for (RequestId id : ids()) Finish(id, FinishReason::kCancelled, status);
  }

  absl::Status Health() const override { return absl::OkStatus(); }
  EngineStats Stats() const override {
    absl::MutexLock lock(&mutex_);
    EngineStats stats;
    stats.n_running_requests = static_cast<int64_t>(requests_.size());
    stats.n_finished_requests = n_finished_;
    stats.n_cancelled_requests = n_cancelled_;
    stats.dtype = "float32";
    return stats;
  }
  const ModelConfig& config() const override { return config_; }
  EngineLimits limits() const override { return limits_; }
  void SetProfile(SelectionProfile profile) override {
    absl::MutexLock lock(&mutex_);
    profile_ = std::move(profile.name);
  }
  CostTable Costs(const CostQuery& query) const override {
    if (on_costs) on_costs();
    absl::MutexLock lock(&mutex_);
    CostTable table;
    table.profile = profile_;
    MechanismCosts& costs = table.mechanisms.emplace_back();
    for (const int64_t n : query.lengths) {
      costs.points.push_back({n, 0.5, 0.25, 0.5 + 0.25 * static_cast<double>(query.n_new_tokens),
                              16 * (n + query.n_new_tokens)});
    }
    table.selections.push_back({{.objective = Objective::kLatency},
                                Mechanism::kStandard,
                                {{Mechanism::kStandard, Mechanism::kTaylorShift, 512}}});
    table.selections.push_back({{.objective = Objective::kMemory}, std::nullopt, {}});
    return table;
  }
  absl::StatusOr<std::vector<int64_t>> HeldBytes(const AttentionOptions& options,
                                                 absl::Span<const int64_t> lengths) const override {
    if (options.mechanism == Mechanism::kLasso) {
      return absl::FailedPreconditionError("attention.mechanism: lasso needs weights");
    }
    std::vector<int64_t> bytes;
    const int64_t each = options.mechanism == Mechanism::kStandard ? 16 : 8;
    for (const int64_t n : lengths) bytes.push_back(each * n);
    return bytes;
  }
  std::vector<MechanismInfo> mechanisms() const override {
    return {{Mechanism::kStandard, {}, 1024.0, {}},
            {Mechanism::kAtp, {}, 512.0, PerplexityRatios({{512, 1.1}, {2048, 1.2}}), true},
            {Mechanism::kTaylorShift, {}, 0.0, {}, true}};
  }

  std::function<void()> on_costs = nullptr;  // Costs calls it first

  // The test's side. Ids of requests that run, oldest first.
  std::vector<RequestId> ids() const {
    absl::MutexLock lock(&mutex_);
    std::vector<RequestId> ids;
    for (const auto& [id, entry] : requests_) ids.push_back(id);
    return ids;
  }

  // Waits for `n` running requests.
  bool WaitForRunning(size_t n, absl::Duration timeout = absl::Seconds(20)) {
    const auto has_n = [this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return requests_.size() == n; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&has_n), timeout);
  }

  // Waits until Resume was called `n` times in all.
  bool WaitForResumes(size_t n, absl::Duration timeout = absl::Seconds(20)) {
    const auto has_n = [this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return resumed_.size() >= n; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&has_n), timeout);
  }

  EngineRequest request(RequestId id) const {
    absl::MutexLock lock(&mutex_);
    return requests_.at(id).request;
  }

  SinkAnswer Emit(RequestId id, int32_t token, int32_t choice = 0) {
    SampledToken sampled;
    sampled.token = token;
    return Emit(id, sampled, choice);
  }

  // Ignored, with kStop, when the request has ended meanwhile.
  SinkAnswer Emit(RequestId id, const SampledToken& token, int32_t choice = 0) {
    absl::MutexLock lock(&mutex_);
    const auto it = requests_.find(id);
    if (it == requests_.end()) return SinkAnswer::kStop;
    ++it->second.n_generated[choice];
    return it->second.sink->OnToken(choice, token);
  }

  void EmitPromptLogprobs(RequestId id, std::vector<PromptLogprob> logprobs) {
    absl::MutexLock lock(&mutex_);
    requests_.at(id).sink->OnPromptLogprobs(std::move(logprobs));
  }

  void Finish(RequestId id, FinishReason reason, absl::Status status = absl::OkStatus()) {
    std::optional<Entry> entry;
    FinalEvent event;
    {
      absl::MutexLock lock(&mutex_);
      const auto it = requests_.find(id);
      if (it == requests_.end()) return;
      event = EventOf(it->second, reason, std::move(status));
      entry = std::move(it->second);
      requests_.erase(it);
      ++(reason == FinishReason::kCancelled ? n_cancelled_ : n_finished_);
    }
    entry->sink->OnDone(event);
  }

  void Accept() {
    absl::MutexLock lock(&mutex_);
    submit_error_.reset();
  }

  void RefuseWith(absl::Status error) {
    absl::MutexLock lock(&mutex_);
    submit_error_ = std::move(error);
  }

 private:
  struct Entry {
    EngineRequest request;
    std::unique_ptr<Sink> sink;
    std::map<int32_t, int32_t> n_generated;  // by choice
  };

  static FinalEvent EventOf(Entry& entry, FinishReason reason, absl::Status status) {
    FinalEvent event;
    event.status = std::move(status);
    event.n_prompt_tokens = static_cast<int32_t>(entry.request.prompt.size());
    event.seed = entry.request.sampling.seed;
    event.attention.mechanism = entry.request.attention.mechanism;
    for (int32_t i = 0; i < entry.request.n; ++i) {
      event.finish_reasons.push_back(reason);
      event.n_generated.push_back(entry.n_generated[i]);
    }
    return event;
  }

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return requests_.empty(); }

  ModelConfig config_;
  EngineLimits limits_;
  mutable absl::Mutex mutex_;
  std::string profile_ ABSL_GUARDED_BY(mutex_);  // the name
  std::map<RequestId, Entry> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<RequestId> resumed_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> submit_error_ ABSL_GUARDED_BY(mutex_);
  RequestId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t n_finished_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t n_cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_FAKE_ENGINE_H_
