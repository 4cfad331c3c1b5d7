#ifndef LOWKEY_ENGINE_RUNTIME_MODEL_MEMORY_H_
#define LOWKEY_ENGINE_RUNTIME_MODEL_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/tensor.h"
#include "engine/kernels/packed_weight.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// Returns the bytes that a matrix [n_out, n_in] of a checkpoint takes once it is loaded, but for
// the rows that kernels may add to fill their last panel. Every prediction of a model's memory
// counts its weights here.
int64_t LoadedBytes(const TensorView& weight, const WeightStorage& storage);

// The memory that an engine takes, predicted from a checkpoint's headers, in bytes.
struct ModelMemory {
  int64_t matrix_bytes = 0;     // linear maps, those of lowkey.json among them
  int64_t embedding_bytes = 0;  // stays in the file, whose pages the system may drop; on a device
                                // it is loaded
  int64_t step_bytes = 0;       // activations of a step and logits; without attention's own buffers
  int64_t cache_bytes = 0;      // of an engine that is started now

  int64_t weight_bytes() const { return matrix_bytes + embedding_bytes; }
  int64_t total_bytes() const { return weight_bytes() + step_bytes + cache_bytes; }
};
ModelMemory PredictMemory(const Checkpoint& checkpoint, const EngineOptions& options);

// Checks that the linear maps and a step's buffers fit into available_bytes of the host's memory
// (AvailableMemoryBytes), before anything is loaded. RESOURCE_EXHAUSTED, saying what is needed,
// what is available and what to try. A device checks its own memory while it loads.
absl::Status CheckModelFits(const Checkpoint& checkpoint, const EngineOptions& options,
                            int64_t available_bytes);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_MODEL_MEMORY_H_
