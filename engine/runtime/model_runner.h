#ifndef LOWKEY_ENGINE_RUNTIME_MODEL_RUNNER_H_
#define LOWKEY_ENGINE_RUNTIME_MODEL_RUNNER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/attention/attention.h"
#include "engine/attention/selection/selection.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/packed_weight.h"
#include "engine/loader/checkpoint.h"
#include "engine/model/decoder.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/place/place.h"

namespace lowkey {

// A loaded model with its cache and mechanisms, and the computing of one step. One thread. After an
// exception the step's sequences can only be dropped; the next step is as any other.
class ModelRunner {
 public:
  // Loads weights and reserves the cache. INVALID_ARGUMENT for a dtype or a cache that the place
  // does not have, RESOURCE_EXHAUSTED when memory cannot be had.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(
      std::shared_ptr<const Checkpoint> checkpoint, const EngineOptions& options,
      ProgressFn progress);

  // Consecutive rows of one sequence, to be computed by its mechanism.
  struct Rows {
    SequenceCache* sequence = nullptr;
    int64_t first_position = 0;
    absl::Span<const int32_t> tokens;
    // Set for a single row that takes this token of the last QueueDraw instead of `tokens`.
    std::optional<int64_t> drawn = std::nullopt;
    int64_t n_drafts = 0;  // the last rows, which the sequence may not keep
  };

  // Computes a step of at most max_rows() rows in all. Leaves hidden states for Logits; row numbers
  // count through `rows` in order. RESOURCE_EXHAUSTED when the cache is full: nothing was computed.
  // Any error once health() has one.
  absl::Status Compute(absl::Span<const Rows> rows);
  // Ends the computed step: every sequence has its rows but for drafts, and drops what no later row
  // reads.
  void Advance();
  // Says whether QueueDraw and Collect let drafts be verified (Place::VerifiesDrafts).
  bool VerifiesDrafts() const { return place_->VerifiesDrafts(); }
  // Says whether a step's rows are still being computed when its tokens' masks are waited for.
  bool ComputesMeanwhile() const { return place_->device_place() != nullptr; }
  // Returns AttentionMechanism::RevocableRows of the sequence.
  int64_t RevocableRows(const SequenceCache& sequence, int64_t n_rows) const {
    return mechanism(sequence.options.mechanism).RevocableRows(sequence, n_rows);
  }
  // Keeps the next draft of the ended step: the sequence has a row more.
  void KeepDraft(SequenceCache& sequence) const {
    mechanism(sequence.options.mechanism).Advance(sequence, 1);
  }
  // Computes and advances.
  absl::Status Step(absl::Span<const Rows> rows);

  // Hands the logits of rows of the last step to `consume(index into rows, logits [vocab_size])`,
  // in order. An error is health()'s.
  absl::Status Logits(absl::Span<const int64_t> rows,
                      absl::FunctionRef<void(size_t, absl::Span<const float>)> consume);
  // Returns whether the next step may be computed before the tokens of a step with such a sequence
  // are read: on a device, unless the sequence's mechanism waits for them.
  bool RunsAhead(const AttentionOptions& options) const {
    return place_->RunsAhead(mechanism(options.mechanism), options);
  }
  // Queues the draws of rows of the last step, at most once a step: on a device `ask(i)` says what
  // is wanted of row rows[i]. Tokens are numbered through all rows' requests in order.
  // RESOURCE_EXHAUSTED when the device has no memory to draw with.
  absl::StatusOr<Drawing> QueueDraw(absl::Span<const int64_t> rows,
                                    absl::FunctionRef<RowRequest(size_t)> ask);
  // Waits for the answers and hands those for row rows[i] to `consume(i, ..)`, in order. Where
  // steps do not run ahead, before the next one. An error is health()'s.
  absl::Status Collect(Drawing drawing, absl::FunctionRef<void(size_t, RowTokens&)> consume) {
    return place_->Collect(std::move(drawing), consume);
  }
  // Puts another mechanism in front of one that the model has (tools that watch a model).
  void Wrap(
      Mechanism id,
      absl::FunctionRef<std::unique_ptr<AttentionMechanism>(std::unique_ptr<AttentionMechanism>)>
          wrap) {
    std::unique_ptr<AttentionMechanism>& mechanism = mechanisms_.at(id).mechanism;
    mechanism = wrap(std::move(mechanism));
  }
  // Decoder::Observe (tools that watch a model).
  absl::Status Observe(Decoder::Observer observer) {
    return place_->decoder().Observe(std::move(observer));
  }
  ThreadPool& pool() { return *pool_; }
  // Returns an error for good once a device failed.
  absl::Status health() const { return place_->health(); }

  // FAILED_PRECONDITION when the model has no weights for this mechanism.
  absl::StatusOr<AttentionMechanism*> FindMechanism(Mechanism id) const;
  std::vector<MechanismInfo> mechanisms() const;
  // Returns whether outputs approximate what the model's weights are meant to compute. The outputs
  // of a mechanism that the model brings weights for do not.
  bool IsApproximate(const AttentionOptions& options) const;
  // Engine::Resolve; any thread may call it.
  AttentionOptions Resolve(const AttentionOptions& options) const;
  // Chooses for a request among standard, atp and what the model's bundle brings, with the options
  // of `base`, and among the options that were measured where `base` leaves a mechanism's at their
  // defaults. SelectMechanism's errors.
  absl::StatusOr<Selection> Select(SelectionRules rules, const AttentionOptions& base,
                                   const RequestLengths& lengths, int64_t max_tokens) const;
  // Engine::Costs and Engine::BytesByLength; any thread may call them.
  CostTable Costs(const CostQuery& query, int64_t context_tokens) const;
  absl::StatusOr<std::vector<CacheBytes>> BytesByLength(const AttentionOptions& options,
                                                        absl::Span<const int64_t> lengths) const;
  // Replaces the rates that Select reads; any thread may call it.
  void SetProfile(SelectionProfile profile);
  // The mechanism, which the model must have.
  AttentionMechanism& mechanism(Mechanism id) const { return *mechanisms_.at(id).mechanism; }
  const ModelConfig& config() const { return place_->decoder().config(); }
  const AttentionGeometry& geometry() const { return geometry_; }
  // The sequence memory: its limit, the size of a page, and the bytes in use.
  int64_t cache_budget_bytes() const { return place_->cache().budget_bytes(); }
  int64_t page_bytes() const { return place_->cache().page_bytes(); }
  int64_t used_cache_bytes() const { return place_->used_cache_bytes(); }
  // The budget of the cache that sequences with these options are held in.
  int64_t cache_budget_bytes(const AttentionOptions& options) const {
    return place_->cache(CacheOf(options)).budget_bytes();
  }
  // Place::CacheOf and Place::SetReclaimer, which number the caches.
  size_t n_caches() const { return place_->n_caches(); }
  size_t CacheOf(const AttentionOptions& options) const {
    return place_->CacheOf(mechanism(options.mechanism), options);
  }
  int64_t used_bytes_of_cache(size_t cache) const { return place_->cache(cache).used_bytes(); }
  void SetReclaimer(const std::function<bool(size_t cache)>& reclaim) {
    place_->SetReclaimer(reclaim);
  }
  int64_t max_rows() const { return max_rows_; }
  // The bytes of weights, and of the calibration where there is one.
  int64_t weight_bytes() const;
  StorageType weight_type() const { return weight_type_; }
  const std::string& weights_name() const { return weights_name_; }  // WeightsName
  int n_threads() const { return pool_->n_threads(); }
  // The instruction set of the host's kernels, or the device's name.
  std::string processor() const { return place_->processor(); }

 private:
  // A mechanism that the model has weights for.
  struct RunnableMechanism {
    std::unique_ptr<MechanismWeights> weights;  // nullptr where the model brings none
    std::unique_ptr<AttentionMechanism> mechanism;
    PerplexityRatios perplexity_ratios;
    int64_t weight_set = 0;
    std::vector<Segment> segments;  // of the step
  };

  ModelRunner() = default;
  std::vector<SelectionCandidate> Candidates(const AttentionOptions& base) const;
  std::shared_ptr<const SelectionProfile> profile() const;
  PerplexityRatios RatiosOf(const AttentionOptions& options) const;
  // Puts the step's rows in order, those of a weight set together.
  void Arrange(absl::Span<const Rows> rows);
  // Plans the step of every mechanism that has segments.
  absl::Status Plan();
  // Appends the segment to the model's rows, which `group` counts.
  void Append(const Rows& rows, RunnableMechanism& mechanism, Decoder::Group& group);
  void PadRows(Decoder::Group& group);
  std::vector<int64_t> DecoderRows(absl::Span<const int64_t> rows) const;
  void MakeMechanisms(const Checkpoint& checkpoint);

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Place> place_;
  std::shared_ptr<const PrincipalCodes> codes_;  // outlives mechanisms_
  StorageType weight_type_ = StorageType::kFloat32;
  std::string weights_name_;
  AttentionGeometry geometry_;
  std::map<Mechanism, RunnableMechanism> mechanisms_;
  int64_t max_rows_ = 0;
  mutable absl::Mutex profile_mutex_;
  std::shared_ptr<const SelectionProfile> profile_ ABSL_GUARDED_BY(profile_mutex_);
  std::vector<MeasuredQuality> measured_;  // of the model's bundle
  std::optional<double> max_perplexity_ratio_;
  // The step's rows in the decoder's order, and where the caller's rows went.
  std::vector<int32_t> tokens_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> row_of_;
  std::vector<DrawnToken> drawn_;
  std::vector<Decoder::Group> groups_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_MODEL_RUNNER_H_
