#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_READ_TEXTS_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_READ_TEXTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

using TokenTexts = absl::Span<const std::vector<int32_t>>;  // ids; each text begins anew

struct CalibrationProgress {
  // Each is called with (done, in all) from the calling thread; null: not called.
  std::function<void(int64_t, int64_t)> loading;  // bytes
  std::function<void(int64_t, int64_t)> reading;  // tokens
  std::function<void(int64_t, int64_t)> solving;  // what the texts are read for: codes, matrices
};

// Loads a model that reads such texts, one at a time, on the host. `engine` has threads and dtype.
//   INVALID_ARGUMENT    no text, an id out of range, or a device
//   OUT_OF_RANGE        a text longer than the model's context
//   RESOURCE_EXHAUSTED  memory cannot be had
absl::StatusOr<std::unique_ptr<ModelRunner>> MakeTextReader(
    std::shared_ptr<const Checkpoint> checkpoint, TokenTexts texts, const EngineOptions& engine,
    const std::function<void(int64_t, int64_t)>& loading);

// Runs the texts through the model by standard attention.
absl::Status ReadTexts(ModelRunner& reader, TokenTexts texts,
                       const std::function<void(int64_t, int64_t)>& reading);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_READ_TEXTS_H_
