#include "server/request/request.h"

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

template <typename T>
void Take(const std::optional<T>& from, T& to) {
  if (from.has_value()) to = *from;
}

// Refuses an option that belongs to another mechanism.
absl::Status CheckOwners(const OptionValues& options, Mechanism mechanism) {
  for (const AttentionOption& option : AttentionOptionTable()) {
    if (option.owner == mechanism || !options.contains(option.name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attention.", std::string(option.name), ": set, but the mechanism is \"",
                     std::string(MechanismName(mechanism)), "\", expected \"",
                     std::string(MechanismName(option.owner)), "\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionOptions> MergeOptions(const OptionValues& options,
                                              AttentionOptions defaults) {
  // The engine's validators name the option; callers need the name of its message too.
  LK_RETURN_IF_ERROR(Prefixed("attention", SetOptions(options, defaults)));
  LK_RETURN_IF_ERROR(Prefixed("attention", ValidateAttentionOptions(defaults)));
  return defaults;
}

absl::StatusOr<SelectionRules> MergeRules(const AttentionChoice& choice, SelectionRules rules) {
  if (choice.objective.has_value()) {
    LK_ASSIGN_OR_RETURN(rules.objective,
                        Prefixed("attention", ParseName<Objective>(*choice.objective)));
  }
  if (!choice.allowed.empty()) rules.allowed.clear();
  for (const std::string& name : choice.allowed) {
    LK_ASSIGN_OR_RETURN(const Mechanism mechanism,
                        Prefixed("attention.allowed", ParseMechanism(name)));
    if (std::find(rules.allowed.begin(), rules.allowed.end(), mechanism) != rules.allowed.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention.allowed: ", name, " twice, expected each mechanism once"));
    }
    rules.allowed.push_back(mechanism);
  }
  Take(choice.allow_approximate, rules.allow_approximate);
  if (const std::optional<double>& ratio = choice.max_perplexity_ratio; ratio.has_value()) {
    if (!(*ratio >= 1.0 && *ratio <= 1e6)) {
      return absl::InvalidArgumentError(
          absl::StrCat("attention.max_perplexity_ratio: ", *ratio, ", expected 1..1000000"));
    }
    rules.max_perplexity_ratio = ratio;
  }
  return rules;
}

// Refuses a mechanism of unknown name, and rules that only "auto" reads.
absl::Status CheckNamedMechanism(const AttentionChoice& choice) {
  if (choice.mechanism.has_value() && !ParseMechanism(*choice.mechanism).ok()) {
    return Prefixed("attention",
                    UnknownName(kEnumNames<Mechanism>, *choice.mechanism, kAutoMechanism));
  }
  const char* rule = choice.objective.has_value()              ? "objective"
                     : !choice.allowed.empty()                 ? "allowed"
                     : choice.allow_approximate.has_value()    ? "allow_approximate"
                     : choice.max_perplexity_ratio.has_value() ? "max_perplexity_ratio"
                                                               : nullptr;
  if (rule == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("attention.", rule, ": set, but the mechanism is not \"auto\""));
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
  AttentionOptions options = defaults;
  if (choice.mechanism.has_value()) {
    LK_ASSIGN_OR_RETURN(options.mechanism,
                        Prefixed("attention", ParseMechanism(*choice.mechanism)));
  }
  LK_ASSIGN_OR_RETURN(options, MergeOptions(choice.options, options));
  LK_RETURN_IF_ERROR(CheckOwners(choice.options, options.mechanism));
  return options;
}

absl::StatusOr<ResolvedAttention> ResolveSelectable(const AttentionChoice& choice,
                                                    const Defaults& defaults) {
  const bool is_auto = choice.mechanism.has_value() ? *choice.mechanism == kAutoMechanism
                                                    : defaults.selection.has_value();
  ResolvedAttention resolved;
  if (!is_auto) {
    LK_RETURN_IF_ERROR(CheckNamedMechanism(choice));
    LK_ASSIGN_OR_RETURN(resolved.options, ResolveAttention(choice, defaults.attention));
    return resolved;
  }
  LK_ASSIGN_OR_RETURN(resolved.options, MergeOptions(choice.options, defaults.attention));
  LK_ASSIGN_OR_RETURN(resolved.selection,
                      MergeRules(choice, defaults.selection.value_or(SelectionRules{})));
  return resolved;
}

absl::StatusOr<DraftMode> ResolveDraft(const std::optional<std::string>& choice,
                                       DraftMode fallback) {
  if (!choice.has_value()) return fallback;
  const absl::StatusOr<DraftMode> mode = ParseName<DraftMode>(*choice);
  if (mode.ok()) return *mode;
  return absl::InvalidArgumentError(
      absl::StrCat("draft: \"", *choice, "\", expected ", ListNames(kEnumNames<DraftMode>)));
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
  LK_RETURN_IF_ERROR(Prefixed("sampling", ValidateSamplingOptions(merged, vocab_size)));
  return merged;
}

}  // namespace lowkey
