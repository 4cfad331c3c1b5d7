#ifndef LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_
#define LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

// Bytes of cache that the request holds at most while none of its choices has more than n_tokens
// rows, as a function of n_tokens that the runner outlives. The model must have the mechanism.
std::function<int64_t(int64_t n_tokens)> CacheBytes(const EngineRequest& request,
                                                    const ModelRunner& runner);

// Everything of a request that the model and the engine's limits decide. Errors: those of
// Engine::Submit up to OUT_OF_RANGE.
absl::Status CheckRequest(const EngineRequest& request, const ModelRunner& runner,
                          const EngineLimits& limits);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_
