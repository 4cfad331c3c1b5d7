#include "server/request.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// The engine's validators name the option; the caller must know which message it sits in.
absl::Status Within(const char* message_name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(message_name, ": ", status.message()));
}

template <typename T>
void Take(const std::optional<T>& from, T& to) {
  if (from.has_value()) to = *from;
}

// An option of atp that is set, if any.
const char* FirstAtpOption(const AttentionChoice& choice) {
  if (choice.rank.has_value()) return "rank";
  if (choice.basis.has_value()) return "basis";
  if (choice.prefill.has_value()) return "prefill";
  if (choice.block_tokens.has_value()) return "block_tokens";
  if (choice.sinks.has_value()) return "sinks";
  if (choice.window_blocks.has_value()) return "window_blocks";
  return nullptr;
}

absl::StatusOr<AttentionOptions> MergeAttention(const AttentionChoice& choice,
                                                const AttentionOptions& defaults) {
  AttentionOptions merged = defaults;
  if (choice.mechanism.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.mechanism, ParseMechanism(*choice.mechanism));
  }
  if (choice.rank.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.rank, ParseRank(*choice.rank));
  }
  if (choice.basis.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.basis, ParseAtpBasis(*choice.basis));
  }
  if (choice.prefill.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.prefill, ParseAtpPrefill(*choice.prefill));
  }
  Take(choice.block_tokens, merged.atp.block_tokens);
  Take(choice.sinks, merged.atp.sinks);
  Take(choice.window_blocks, merged.atp.window_blocks);
  LK_RETURN_IF_ERROR(ValidateAttentionOptions(merged));
  return merged;
}

}  // namespace

absl::Status CheckUtf8(const std::string& field, const std::string& text) {
  const std::optional<size_t> at = FindInvalidUtf8(text);
  if (!at.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": byte ", *at, " is not UTF-8, expected UTF-8 text"));
}

absl::StatusOr<AttentionOptions> ResolveAttention(const AttentionChoice& choice,
                                                  const AttentionOptions& defaults) {
  absl::StatusOr<AttentionOptions> merged = MergeAttention(choice, defaults);
  if (!merged.ok()) return Within("attention", merged.status());
  const char* option = FirstAtpOption(choice);
  if (option != nullptr && merged->mechanism != Mechanism::kAtp) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention.", option, ": set, but the mechanism is \"",
                     std::string(MechanismName(merged->mechanism)), "\", expected \"atp\""));
  }
  return merged;
}

absl::StatusOr<SamplingOptions> ResolveSampling(const SamplingChoice& choice,
                                                const SamplingOptions& defaults,
                                                int32_t vocab_size) {
  SamplingOptions merged = defaults;
  Take(choice.temperature, merged.temperature);
  Take(choice.top_k, merged.top_k);
  Take(choice.top_p, merged.top_p);
  Take(choice.min_p, merged.min_p);
  Take(choice.repetition_penalty, merged.repetition_penalty);
  Take(choice.presence_penalty, merged.presence_penalty);
  Take(choice.frequency_penalty, merged.frequency_penalty);
  if (!choice.logit_bias.empty()) merged.logit_bias = choice.logit_bias;
  Take(choice.seed, merged.seed);
  LK_RETURN_IF_ERROR(Within("sampling", ValidateSamplingOptions(merged, vocab_size)));
  return merged;
}

}  // namespace lowkey
