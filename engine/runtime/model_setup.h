#ifndef LOWKEY_ENGINE_RUNTIME_MODEL_SETUP_H_
#define LOWKEY_ENGINE_RUNTIME_MODEL_SETUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/attention/attention.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/packed_weight.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/place/place.h"

namespace lowkey {

// The functions of this header say what a checkpoint and an engine's options amount to, before any
// weights are loaded.

// MechanismSetup is a mechanism as a checkpoint describes it.
struct MechanismSetup {
  Mechanism id = Mechanism::kStandard;
  AttentionGeometry geometry;
  std::optional<size_t> bundled;              // index into the checkpoint's mechanisms
  std::unique_ptr<MechanismWeights> weights;  // nullptr unless bundled
  const PrincipalCodes* codes = nullptr;      // for standard and atp

  // Returns nullptr when the checkpoint has no weights for the mechanism.
  std::unique_ptr<AttentionMechanism> Make(Place& place, ThreadPool& pool) const {
    return MakeMechanism(
        id, {geometry, &place.cache(), &pool, weights.get(), place.device_place(), codes});
  }
};

// Returns all mechanisms, those without weights in the checkpoint too.
std::vector<MechanismSetup> SetUpMechanisms(const Checkpoint& checkpoint, StorageType cache_type);

// Returns the error of a mechanism for which the checkpoint has no weights.
absl::Status MissingWeights(Mechanism id);

// Returns whether outputs approximate what the model's weights are meant to compute. `weights` are
// those that the model brings for the mechanism alone, or null.
bool ApproximatesWeights(const AttentionOptions& options, const MechanismWeights* weights);

// Returns the bytes by which a long sequence grows with each token.
double BytesPerToken(const AttentionMechanism& mechanism, const AttentionOptions& options);

// Returns the longest sequence in tokens: the model's context, or the options' limit below it.
int64_t ContextTokens(const EngineOptions& options, const ModelConfig& config);

// Returns options.cache_bytes, or else what the place can spare (Place::spare_bytes), at least a
// page and at most what 64 full contexts need.
int64_t CacheBudget(const EngineOptions& options, int64_t spare_bytes,
                    const AttentionGeometry& geometry, int64_t context_tokens);

// Returns EngineOptions::n_threads, or one per core for 0.
int ResolveThreads(int n_threads);

// Returns how a checkpoint's weights are held. Dtype::kAuto is bf16 unless the checkpoint's
// matrices are F32, and on the host quantized matrices stay as the file stores them. The cache has
// RowTypeOf the type.
WeightStorage ResolveStorage(const EngineOptions& options, const Checkpoint& checkpoint);

// Calls body for every matrix that rows are multiplied with, except those of bundles.
void EachMatrix(const Checkpoint& checkpoint, absl::FunctionRef<void(const TensorView&)> body);

// Returns "float32", "bfloat16", "int8" or "float8".
std::string StorageName(StorageType type);
// Returns the name of what most weights are held as: StorageName, or the name of codes that are
// kept, such as "Q4_K".
std::string WeightsName(const Checkpoint& checkpoint, const WeightStorage& storage);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_MODEL_SETUP_H_
