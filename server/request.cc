#include "server/request.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

constexpr char kAuto[] = "auto";

// The engine's validators name the option; the caller must know which message it sits in.
absl::Status Within(const char* message_name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(message_name, ": ", status.message()));
}

template <typename T>
void Take(const std::optional<T>& from, T& to) {
  if (from.has_value()) to = *from;
}

// INVALID_ARGUMENT when an option is set that belongs to another mechanism.
absl::Status CheckOptionsBelong(const AttentionChoice& choice, Mechanism mechanism) {
  const struct {
    const char* name;
    bool is_set;
    Mechanism owner;
  } options[] = {
      {"rank", choice.rank.has_value(), Mechanism::kAtp},
      {"basis", choice.basis.has_value(), Mechanism::kAtp},
      {"prefill", choice.prefill.has_value(), Mechanism::kAtp},
      {"block_tokens", choice.block_tokens.has_value(), Mechanism::kAtp},
      {"sinks", choice.sinks.has_value(), Mechanism::kAtp},
      {"window_blocks", choice.window_blocks.has_value(), Mechanism::kAtp},
      {"refine_tokens", choice.refine_tokens.has_value(), Mechanism::kAtp},
      {"decomposition", choice.decomposition.has_value(), Mechanism::kAtp},
      {"basis_storage", choice.basis_storage.has_value(), Mechanism::kAtp},
      {"principal_storage", choice.principal_storage.has_value(), Mechanism::kAtp},
      {"readout", choice.readout.has_value(), Mechanism::kAtp},
      {"merge", choice.merge.has_value(), Mechanism::kAtp},
      {"kept_storage", choice.kept_storage.has_value(), Mechanism::kAtp},
      {"cache_storage", choice.cache_storage.has_value(), Mechanism::kStandard},
      {"form", choice.form.has_value(), Mechanism::kTaylorShift},
      {"variant", choice.variant.has_value(), Mechanism::kTaylorShift},
  };
  for (const auto& option : options) {
    if (!option.is_set || option.owner == mechanism) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attention.", option.name, ": set, but the mechanism is \"",
                     std::string(MechanismName(mechanism)), "\", expected \"",
                     std::string(MechanismName(option.owner)), "\""));
  }
  return absl::OkStatus();
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
  if (choice.decomposition.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.decomposition, ParseAtpDecomposition(*choice.decomposition));
  }
  if (choice.basis_storage.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.basis_storage, ParseAtpStorage(*choice.basis_storage));
  }
  if (choice.principal_storage.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.principal_storage, ParseAtpStorage(*choice.principal_storage));
  }
  if (choice.readout.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.readout, ParseAtpReadout(*choice.readout));
  }
  Take(choice.merge, merged.atp.merge);
  if (choice.kept_storage.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.atp.kept_storage, ParseAtpStorage(*choice.kept_storage));
  }
  if (choice.cache_storage.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.standard.storage, ParseCacheStorage(*choice.cache_storage));
  }
  Take(choice.block_tokens, merged.atp.block_tokens);
  Take(choice.sinks, merged.atp.sinks);
  Take(choice.window_blocks, merged.atp.window_blocks);
  Take(choice.refine_tokens, merged.atp.refine_tokens);
  if (choice.form.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.taylorshift.form, ParseTaylorForm(*choice.form));
  }
  if (choice.variant.has_value()) {
    LK_ASSIGN_OR_RETURN(merged.taylorshift.variant, ParseTaylorVariant(*choice.variant));
  }
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
  LK_RETURN_IF_ERROR(CheckOptionsBelong(choice, merged->mechanism));
  return merged;
}

std::string AttentionLabel(const AttentionOptions& attention) {
  std::string name(MechanismName(attention.mechanism));
  if (attention.mechanism == Mechanism::kStandard && IsApproximate(attention)) {
    absl::StrAppend(&name, " cache ", std::string(CacheStorageName(attention.standard.storage)));
  }
  if (attention.mechanism == Mechanism::kTaylorShift) {
    absl::StrAppend(&name, " ", std::string(TaylorVariantName(attention.taylorshift.variant)),
                    " form ", std::string(TaylorFormName(attention.taylorshift.form)));
  }
  if (attention.mechanism != Mechanism::kAtp) return name;
  const AtpOptions& atp = attention.atp;
  absl::StrAppend(&name, " rank ", RankString(atp.rank), " basis ",
                  std::string(AtpBasisName(atp.basis)), " block ", atp.block_tokens, " window ",
                  atp.window_blocks);
  if (atp.decomposition != AtpDecomposition::kBlock) {
    absl::StrAppend(&name, " ", std::string(AtpDecompositionName(atp.decomposition)));
  }
  if (atp.basis_storage != AtpStorage::kCache) {
    absl::StrAppend(&name, " U ", std::string(AtpStorageName(atp.basis_storage)));
  }
  if (atp.principal_storage == AtpStorage::kInt8) absl::StrAppend(&name, " K'V' int8");
  if (atp.refine_tokens > 0) absl::StrAppend(&name, " refine ", atp.refine_tokens);
  if (atp.readout == AtpReadout::kLinear) absl::StrAppend(&name, " readout linear");
  if (atp.merge) absl::StrAppend(&name, " merge");
  if (atp.kept_storage == AtpStorage::kInt8) absl::StrAppend(&name, " kept int8");
  if (atp.prefill == AtpPrefill::kExact) absl::StrAppend(&name, " prefill exact");
  return name;
}

absl::StatusOr<ResolvedAttention> ResolveSelectable(const AttentionChoice& choice,
                                                    const Defaults& defaults) {
  const bool is_auto =
      choice.mechanism.has_value() ? *choice.mechanism == kAuto : defaults.selection.has_value();
  if (!is_auto) {
    const char* rule = choice.objective.has_value()           ? "objective"
                       : !choice.allowed.empty()              ? "allowed"
                       : choice.allow_approximate.has_value() ? "allow_approximate"
                                                              : nullptr;
    if (rule != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention.", rule, ": set, but the mechanism is not \"auto\""));
    }
    LK_ASSIGN_OR_RETURN(const AttentionOptions options,
                        ResolveAttention(choice, defaults.attention));
    return ResolvedAttention{options, std::nullopt};
  }
  AttentionChoice others = choice;
  others.mechanism.reset();
  const absl::StatusOr<AttentionOptions> options = MergeAttention(others, defaults.attention);
  if (!options.ok()) return Within("attention", options.status());
  SelectionRules rules = defaults.selection.value_or(SelectionRules{});
  if (choice.objective.has_value()) {
    const auto objective = ParseObjective(*choice.objective);
    if (!objective.ok()) return Within("attention", objective.status());
    rules.objective = *objective;
  }
  if (!choice.allowed.empty()) rules.allowed.clear();
  for (const std::string& name : choice.allowed) {
    const auto mechanism = ParseMechanism(name);
    if (!mechanism.ok()) return Within("attention.allowed", mechanism.status());
    rules.allowed.push_back(*mechanism);
  }
  Take(choice.allow_approximate, rules.allow_approximate);
  return ResolvedAttention{*options, rules};
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
