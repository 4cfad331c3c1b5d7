#ifndef LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_
#define LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

// Returns a function of n_tokens: the most cache that the request holds, in bytes, while none of
// its choices has more than n_tokens rows. The bytes are a share of the engine's whole cache: those
// of a request in a smaller cache, on the host beside a device, count for more. The runner outlives
// the function and has the mechanism.
std::function<int64_t(int64_t n_tokens)> CacheBytesOf(const EngineRequest& request,
                                                      const ModelRunner& runner);

// INVALID_ARGUMENT `field[i]: token, expected 0..max` unless all are tokens of the vocabulary.
absl::Status CheckTokens(absl::string_view field, absl::Span<const int32_t> tokens,
                         int32_t vocab_size);

// Checks a request against the model and the engine's limits. Errors: those of Engine::Submit up to
// OUT_OF_RANGE.
absl::Status CheckRequest(const EngineRequest& request, const ModelRunner& runner,
                          const EngineLimits& limits);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_REQUEST_CHECK_H_
