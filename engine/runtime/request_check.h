#ifndef LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_
#define LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

// Bytes of cache that the request holds at most while none of its choices has more than n_tokens
// rows. The model must have the mechanism.
int64_t BoundBytes(const EngineRequest& request, const ModelRunner& runner, int64_t n_tokens);

// Everything of a request that the model and the engine's limits decide. Errors: those of
// Engine::Submit up to OUT_OF_RANGE.
absl::Status CheckRequest(const EngineRequest& request, const ModelRunner& runner,
                          const EngineLimits& limits);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_
