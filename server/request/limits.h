#ifndef LOWKEY_SERVER_REQUEST_LIMITS_H_
#define LOWKEY_SERVER_REQUEST_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace lowkey {

// The limits of a request that only the server knows, checked before anything is done with the
// request; the engine has limits of its own (engine/config/limits.h). The comments in
// generation.proto state the same numbers (tests/server/api/convert_test.cc).
inline constexpr size_t kMaxMessageBytes = size_t{4} << 20;
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr size_t kMaxStopTexts = 16;
inline constexpr size_t kMaxStopTextBytes = 256;
inline constexpr size_t kMaxStopTokens = 64;
inline constexpr size_t kMaxPrefixMarks = 16;
// The most log-probabilities of one answer's prompts: each token counts itself and its
// alternatives.
inline constexpr int64_t kMaxPromptLogprobs = int64_t{1} << 17;
inline constexpr size_t kMaxContinuations = 64;
inline constexpr size_t kMaxChatMessages = 4096;
inline constexpr size_t kMaxToolCalls = 128;
inline constexpr size_t kMaxTokenizeBytes = size_t{1} << 20;
inline constexpr int kMaxDetokenizeIds = 1 << 20;  // an id of one byte can be a long text
// The most memory that an answer of Tokenize or Detokenize may take.
inline constexpr size_t kMaxTextAnswerBytes = size_t{32} << 20;

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_LIMITS_H_
