#ifndef LOWKEY_SERVER_CONFIG_COMMON_FLAGS_H_
#define LOWKEY_SERVER_CONFIG_COMMON_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"
#include "server/config/flags.h"
#include "server/request/request.h"

namespace lowkey {

// Flags that several commands share, so that they mean the same everywhere.

absl::Span<const Flag> ModelFlags();      // --model --offline
absl::Span<const Flag> EngineFlags();     // --dtype --threads
absl::Span<const Flag> ServingFlags();    // --cache-bytes --max-batch-tokens ... --context
absl::Span<const Flag> AttentionFlags();  // --attention --rank ... and the rules of auto
// The same without auto and its rules, for commands that compute with a mechanism that is named.
absl::Span<const Flag> NamedAttentionFlags();
absl::Span<const Flag> SamplingFlags();    // --temperature ...
absl::Span<const Flag> DraftFlags();       // --draft
absl::Span<const Flag> GenerationFlags();  // --max-new-tokens --n --stop ...
absl::Span<const Flag> GeneralFlags();     // --json --config

// Readers of those groups. INVALID_ARGUMENT naming the flag. Ranges that depend on the model are
// checked once the model is known.
absl::StatusOr<EngineOptions> ReadEngineOptions(const FlagValues& flags);   // --dtype --threads
absl::StatusOr<EngineOptions> ReadServingOptions(const FlagValues& flags);  // and ServingFlags
absl::StatusOr<SamplingChoice> ReadSampling(const FlagValues& flags);
absl::StatusOr<AttentionChoice> ReadAttention(const FlagValues& flags);
// Reads the same from words, the mechanism first: "atp", "--rank", "16". No words choose nothing.
// The flags are AttentionFlags() or NamedAttentionFlags().
absl::StatusOr<AttentionChoice> ParseAttention(const std::vector<std::string>& words,
                                               absl::Span<const Flag> known = AttentionFlags());
// Reads a request without its model, input and deadline.
absl::StatusOr<GenerationRequest> ReadGeneration(const FlagValues& flags);

// Returns the model's path, or its hf: reference: --model (or its environment variable or config
// line), else the demo model beside the installation, the build folder or the working directory.
// NOT_FOUND with the places that were tried.
absl::StatusOr<std::string> ModelDirectory(const FlagValues& flags);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_COMMON_FLAGS_H_
