#ifndef LOWKEY_ENGINE_CONFIG_LIMITS_H_
#define LOWKEY_ENGINE_CONFIG_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lowkey {

// The limits of a request that the engine checks; the server has limits of its own
// (server/request/limits.h). The comments in generation.proto state the same numbers
// (tests/server/api/convert_test.cc).
inline constexpr int32_t kMaxLogprobs = 20;
inline constexpr int32_t kMaxChoices = 8;
inline constexpr int32_t kMaxPriority = 100;  // the least priority is -kMaxPriority
inline constexpr size_t kMaxBiases = 1024;
inline constexpr float kMaxBias = 100.0f;  // the least bias is -kMaxBias

// Returns INVALID_ARGUMENT `field: value, expected min..max` for a value outside of the range.
absl::Status CheckRange(absl::string_view field, int64_t value, int64_t min, int64_t max);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_LIMITS_H_
