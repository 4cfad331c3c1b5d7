#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_CODES_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_CODES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/principal_codes.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"

namespace lowkey {

struct CodeProgress {
  // Each is called with (done, in all) from the calling thread; null: not called.
  std::function<void(int64_t, int64_t)> loading;  // bytes
  std::function<void(int64_t, int64_t)> reading;  // tokens
  std::function<void(int64_t, int64_t)> solving;  // codes
};

// Runs texts of token ids through the model and finds the codes of its keys and values
// (docs/calibration.md). Each text begins anew; its first 4 tokens do not count. `engine` has
// threads and dtype.
//   INVALID_ARGUMENT    no text, an id out of range, or a device
//   OUT_OF_RANGE        a text longer than the model's context
//   FAILED_PRECONDITION a model without RoPE over an even key_dim, too few tokens, or keys, values
//                       or queries that are not finite
//   RESOURCE_EXHAUSTED  memory cannot be had
absl::StatusOr<PrincipalCodes> FindPrincipalCodes(std::shared_ptr<const Checkpoint> checkpoint,
                                                  absl::Span<const std::vector<int32_t>> texts,
                                                  const EngineOptions& engine,
                                                  const CodeProgress& progress);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_CODES_H_
