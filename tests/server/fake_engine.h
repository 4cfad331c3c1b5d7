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
  explicit FakeEngine(int32_t vocab_size = 4096);

  ~FakeEngine() override;

  absl::StatusOr<RequestId> Submit(EngineRequest request, std::unique_ptr<Sink> sink) override;

  void Cancel(RequestId id) override;

  void Resume(RequestId id) override;

  bool Drain(absl::Time deadline) override;

  void EndAll(const absl::Status& status) override;

  absl::Status Health() const override { return absl::OkStatus(); }
  EngineStats Stats() const override;
  const ModelConfig& config() const override { return config_; }
  EngineLimits limits() const override { return limits_; }
  void SetProfile(SelectionProfile profile) override;
  CostTable Costs(const CostQuery& query) const override;
  absl::StatusOr<std::vector<CacheBytes>> BytesByLength(
      const AttentionOptions& options, absl::Span<const int64_t> lengths) const override;
  AttentionOptions Resolve(const AttentionOptions& options) const override { return options; }
  std::vector<MechanismInfo> mechanisms() const override;

  std::function<void()> on_costs = nullptr;  // Costs calls it first

  // The test's side. Ids of requests that run, oldest first.
  std::vector<RequestId> ids() const;

  // Waits for `n` running requests.
  bool WaitForRunning(size_t n, absl::Duration timeout = absl::Seconds(20));

  // Waits until Resume was called `n` times in all.
  bool WaitForResumes(size_t n, absl::Duration timeout = absl::Seconds(20));

  EngineRequest request(RequestId id) const;

  SinkAnswer Emit(RequestId id, int32_t token, int32_t choice = 0);

  // Ignored, with kStop, when the request has ended meanwhile.
  SinkAnswer Emit(RequestId id, const SampledToken& token, int32_t choice = 0);

  void EmitPromptLogprobs(RequestId id, std::vector<PromptLogprob> logprobs);

  void Finish(RequestId id, FinishReason reason, absl::Status status = absl::OkStatus());

  void Accept();

  void RefuseWith(absl::Status error);

 private:
  struct Entry {
    EngineRequest request;
    std::unique_ptr<Sink> sink;
    std::map<int32_t, int32_t> n_generated;  // by choice
  };

  static FinalEvent EventOf(Entry& entry, FinishReason reason, absl::Status status);

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
