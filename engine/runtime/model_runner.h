#ifndef LOWKEY_ENGINE_RUNTIME_MODEL_RUNNER_H_
#define LOWKEY_ENGINE_RUNTIME_MODEL_RUNNER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/attention.h"
#include "engine/attention/selection/selection.h"
#include "engine/base/thread_pool.h"
#include "engine/cache/cache.h"
#include "engine/model/decoder.h"
#include "engine/model/device/device_transformer.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/row_tokens.h"
#include "engine/sampler/device_sampler.h"

namespace lowkey {

// A loaded model with its cache and mechanisms, and the computing of one step, on the host or on a
// device. One thread. After an exception the step's sequences can only be dropped; the next step is
// as any other.
class ModelRunner {
 public:
  // Loads weights and reserves the cache. Errors: those of OpenCheckpoint, RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(const std::string& model_directory,
                                                             const EngineOptions& options,
                                                             ProgressFn progress);

  // Consecutive rows of one sequence, to be computed by its mechanism.
  struct Rows {
    SequenceCache* sequence = nullptr;
    int64_t first_position = 0;
    absl::Span<const int32_t> tokens;
    // Of a single row: its token is this one of the last QueueDraw's, whatever `tokens` says.
    std::optional<int64_t> drawn = std::nullopt;
  };

  // Computes a step of at most max_rows() rows in all. Leaves hidden states for Logits; row numbers
  // count through `rows` in order. RESOURCE_EXHAUSTED when the cache is full: nothing was computed.
  // Any error once health() has one.
  absl::Status Compute(absl::Span<const Rows> rows, const Decoder::Observer& observer = nullptr);
  // After Compute: every sequence has its rows, and drops what no later row reads.
  void Advance();
  // Both.
  absl::Status Step(absl::Span<const Rows> rows, const Decoder::Observer& observer = nullptr);

  // Logits of rows of the last step, handed to `consume(index into rows, logits [vocab_size])` in
  // order. An error is health()'s.
  absl::Status Logits(absl::Span<const int64_t> rows,
                      absl::FunctionRef<void(size_t, absl::Span<const float>)> consume);
  // What is wanted of rows of a step, on its way. Must not outlive the runner.
  class Drawing {
   private:
    friend class ModelRunner;
    std::vector<int64_t> rows_;     // the model's
    std::vector<size_t> n_tokens_;  // of each, on a device
    QueuedTokens tokens_;
  };
  // Whether the next step may be computed before the tokens of one with such a sequence are read:
  // on a device, unless its mechanism waits for it.
  bool RunsAhead(const AttentionOptions& options) const;
  // Asks for what is wanted of rows of the last step, at most once a step: on a device `ask(i)`
  // says of row rows[i] what that is. Tokens are numbered through all rows' requests in order.
  // RESOURCE_EXHAUSTED when the device has no memory to draw with.
  absl::StatusOr<Drawing> QueueDraw(absl::Span<const int64_t> rows,
                                    absl::FunctionRef<RowRequest(size_t)> ask);
  // Waits for it, and hands the answers for row rows[i] to `consume(i, ..)`, in order. Where steps
  // do not run ahead, before the next one. An error is health()'s.
  absl::Status Collect(Drawing drawing, absl::FunctionRef<void(size_t, RowTokens&)> consume);
  // The device's: not OK for good once it failed.
  absl::Status health() const;

  // FAILED_PRECONDITION when the model has no weights for this mechanism.
  absl::StatusOr<AttentionMechanism*> FindMechanism(Mechanism id) const;
  std::vector<MechanismInfo> mechanisms() const;
  // Chooses for a request among standard, atp with the options of `base`, and what the model's
  // bundle brings. SelectMechanism's errors.
  absl::StatusOr<Selection> Select(const SelectionRules& rules, const AttentionOptions& base,
                                   const RequestLengths& lengths, int64_t max_tokens) const;
  // The mechanism, which must be there.
  AttentionMechanism& mechanism(Mechanism id) const { return *mechanisms_.at(id).mechanism; }
  const ModelConfig& config() const { return model_->config(); }
  const AttentionGeometry& geometry() const { return geometry_; }
  // Where sequences are held: bytes that may be taken, of a page, taken.
  int64_t cache_budget_bytes() const { return cache_->budget_bytes(); }
  int64_t page_bytes() const { return cache_->page_bytes(); }
  int64_t used_cache_bytes() const;
  // As Cache::SetReclaimer.
  void SetReclaimer(std::function<bool()> reclaim);
  int64_t max_rows() const { return max_rows_; }
  int64_t weight_bytes() const { return model_->weight_bytes(); }
  StorageType weight_type() const { return weight_type_; }
  int n_threads() const { return pool_->n_threads(); }
  // What computes: the instruction set of the host's kernels, or the device's name.
  std::string processor() const;

 private:
  struct Lane {
    std::unique_ptr<MechanismWeights> weights;  // where the model brings some
    std::unique_ptr<AttentionMechanism> mechanism;
    std::optional<double> perplexity_ratio;
    int64_t weight_set = 0;
    std::vector<Segment> segments;  // of the step
  };

  // Puts the step's rows in order, those of a weight set together.
  void Arrange(absl::Span<const Rows> rows);

  ModelRunner() = default;
  absl::Status LoadModel(std::shared_ptr<const Checkpoint> checkpoint, ProgressFn progress,
                         const EngineOptions& options);
  absl::Status LogitsOf(absl::Span<const int64_t> model_rows,
                        absl::FunctionRef<void(size_t, absl::Span<const float>)> consume);
  void Add(const RowRequest& request, int64_t logits_row);
  absl::Status QueueDrawOnDevice(Drawing& drawing, absl::FunctionRef<RowRequest(size_t)> ask);
  absl::Status MakeCaches(const EngineOptions& options);
  void MakeMechanisms(const Checkpoint& checkpoint);

  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<Device> device_;  // nullptr: the host
  std::unique_ptr<Decoder> model_;
  DeviceTransformer* device_model_ = nullptr;  // model_, on a device
  std::unique_ptr<DeviceSampler> device_sampler_;
  StorageType weight_type_ = StorageType::kFloat32;
  AttentionGeometry geometry_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Cache> host_cache_;  // of mechanisms that the device leaves to the host
  DevicePlace place_;
  std::map<Mechanism, Lane> mechanisms_;  // those that the model has weights for
  int64_t max_rows_ = 0;
  SelectionProfile profile_;
  // The step's rows in the model's order, and where the caller's rows went.
  std::vector<int32_t> tokens_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> row_of_;
  std::vector<DrawnToken> drawn_;
  std::vector<Decoder::Group> groups_;
};

// What a checkpoint says of one mechanism. `bundled` is its place in the checkpoint's bundle.
struct MechanismSetup {
  Mechanism id = Mechanism::kStandard;
  AttentionGeometry geometry;
  std::optional<size_t> bundled;
  std::unique_ptr<MechanismWeights> weights;  // of bundled ones

  // nullptr when the checkpoint has no weights for it.
  std::unique_ptr<AttentionMechanism> Make(Cache& cache, ThreadPool& pool,
                                           const DevicePlace* place = nullptr) const {
    return MakeMechanism(id, {geometry, &cache, &pool, weights.get(), place});
  }
};
std::vector<MechanismSetup> SetUpMechanisms(const Checkpoint& checkpoint, StorageType cache_type);

// Bytes of cache that a mechanism takes for each far token, with default options.
double BytesPerToken(const AttentionMechanism& mechanism, const AttentionOptions& options);

// Bytes of cache: what the options say, else a quarter of available memory or nine tenths of what
// their device has left, at most what 64 full contexts need.
int64_t CacheBudget(const EngineOptions& options, const AttentionGeometry& geometry,
                    int64_t context_tokens);

// EngineOptions::n_threads, 0 being one per core.
int ResolveThreads(int n_threads);

// The weights' type that dtype resolves to for a checkpoint: auto is bf16 unless the checkpoint's
// matrices are F32. The cache's is RowTypeOf that.
StorageType ResolveStorage(EngineOptions::Dtype dtype, const Checkpoint& checkpoint);

// "float32", "bfloat16", "int8" or "float8".
std::string StorageName(StorageType type);

// INVALID_ARGUMENT for weights that only devices multiply with.
absl::Status CheckHostWeights(StorageType type);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_MODEL_RUNNER_H_
