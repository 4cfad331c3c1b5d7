#ifndef LOWKEY_ENGINE_CONFIG_LIMITS_H_
#define LOWKEY_ENGINE_CONFIG_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lowkey {

// Limits of everything that a request can carry, checked before anything is done with the request.
// The comments in generation.proto state the same numbers (tests/server/api/convert_test.cc).
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr size_t kMaxStopTexts = 16;
inline constexpr size_t kMaxStopTextBytes = 256;
inline constexpr size_t kMaxStopTokens = 64;
inline constexpr size_t kMaxPrefixMarks = 16;
inline constexpr int32_t kMaxLogprobs = 20;
// The most log-probabilities of one answer's prompts: each token counts itself and its
// alternatives.
inline constexpr int64_t kMaxPromptLogprobs = int64_t{1} << 17;
inline constexpr int32_t kMaxChoices = 8;
inline constexpr int32_t kMaxPriority = 100;  // the least priority is -kMaxPriority
inline constexpr size_t kMaxBiases = 1024;
inline constexpr float kMaxBias = 100.0f;  // the least bias is -kMaxBias
inline constexpr size_t kMaxContinuations = 64;
inline constexpr size_t kMaxChatMessages = 4096;
inline constexpr size_t kMaxToolCalls = 128;
inline constexpr size_t kMaxTokenizeBytes = size_t{1} << 20;
inline constexpr int kMaxDetokenizeIds = 1 << 20;  // an id of one byte can be a long text
// The most memory that an answer of Tokenize or Detokenize may take.
inline constexpr size_t kMaxTextAnswerBytes = size_t{32} << 20;

// INVALID_ARGUMENT `field: value, expected min..max` for a value outside of the range.
absl::Status CheckRange(absl::string_view field, int64_t value, int64_t min, int64_t max);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_LIMITS_H_
