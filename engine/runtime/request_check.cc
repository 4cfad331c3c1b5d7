#include "engine/runtime/request_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"

namespace lowkey {
namespace {

absl::Status CheckFields(const EngineRequest& r, int32_t vocab_size) {
  constexpr int32_t kNoMost = std::numeric_limits<int32_t>::max();
  if (r.prompt.empty()) {
    return absl::InvalidArgumentError("prompt: 0 tokens, expected at least 1");
  }
  LK_RETURN_IF_ERROR(CheckRange("max_new_tokens", r.max_new_tokens,
                                r.prompt_logprobs.has_value() ? 0 : 1, kNoMost));
  LK_RETURN_IF_ERROR(CheckRange("n", r.n, 1, kMaxChoices));
  if (r.prompt_logprobs.has_value()) {
    LK_RETURN_IF_ERROR(CheckRange("prompt_logprobs", *r.prompt_logprobs, 0, kMaxLogprobs));
    LK_RETURN_IF_ERROR(CheckRange("prompt_logprobs_from", r.prompt_logprobs_from, 1, kNoMost));
  }
  LK_RETURN_IF_ERROR(CheckRange("priority", r.priority, -kMaxPriority, kMaxPriority));
  if (!(r.tenant_weight > 0) || !std::isfinite(r.tenant_weight)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tenant_weight: ", r.tenant_weight, ", expected more than 0"));
  }
  for (int32_t mark : r.prefix_marks) {
    LK_RETURN_IF_ERROR(CheckRange("prefix_marks", mark, 1, static_cast<int64_t>(r.prompt.size())));
  }
  LK_RETURN_IF_ERROR(CheckTokens("prompt", r.prompt, vocab_size));
  LK_RETURN_IF_ERROR(CheckTokens("stop_tokens", r.stop_tokens, vocab_size));
  LK_RETURN_IF_ERROR(ValidateSamplingOptions(r.sampling, vocab_size));
  return ValidateAttentionOptions(r.attention);
}

}  // namespace

absl::Status CheckTokens(absl::string_view field, absl::Span<const int32_t> tokens,
                         int32_t vocab_size) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    LK_RETURN_IF_ERROR(CheckRange(absl::StrCat(field, "[", i, "]"), tokens[i], 0, vocab_size - 1));
  }
  return absl::OkStatus();
}

namespace {

std::function<int64_t(int64_t)> HeldBytes(const EngineRequest& r, const ModelRunner& runner) {
  const auto n_prompt = static_cast<int64_t>(r.prompt.size());
  // The last token generated is never fed.
  const int64_t n_final = n_prompt + std::max(0, r.max_new_tokens - 1);
  const SequenceBound whole{n_prompt, n_final, runner.max_rows(), n_final};
  const AttentionMechanism& mechanism = runner.mechanism(r.attention.mechanism);
  return [&mechanism, attention = r.attention, whole, n = r.n](int64_t n_tokens) {
    SequenceBound bound = whole;
    bound.n_tokens = n_tokens;
    return n * mechanism.BoundBytes(attention, bound);
  };
}

}  // namespace

std::function<int64_t(int64_t)> CacheBytesOf(const EngineRequest& r, const ModelRunner& runner) {
  std::function<int64_t(int64_t)> held = HeldBytes(r, runner);
  const int64_t whole = runner.cache_budget_bytes();
  const int64_t own = runner.cache_budget_bytes(r.attention);
  if (own == whole) return held;
  // The request takes the same share of the whole cache as of its own.
  const double scale = static_cast<double>(whole) / static_cast<double>(own);
  return [held = std::move(held), scale](int64_t n_tokens) {
    return static_cast<int64_t>(std::ceil(static_cast<double>(held(n_tokens)) * scale));
  };
}

absl::Status CheckRequest(const EngineRequest& r, const ModelRunner& runner,
                          const EngineLimits& limits) {
  LK_RETURN_IF_ERROR(CheckFields(r, runner.config().vocab_size));
  LK_ASSIGN_OR_RETURN(const AttentionMechanism* mechanism,
                      runner.FindMechanism(r.attention.mechanism));
  LK_RETURN_IF_ERROR(mechanism->CheckAvailable(r.attention));
  if (r.draft != DraftMode::kOff && !runner.VerifiesDrafts()) {
    return absl::FailedPreconditionError(
        absl::StrCat("draft: ", std::string(NameOf(r.draft)),
                     " on a device, expected off: drafts are verified on the CPU alone"));
  }
  if (r.constraint != nullptr && r.constraint->vocab_size() != runner.config().vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("constraint: for a vocabulary of ",
                                                   r.constraint->vocab_size(), " tokens, expected ",
                                                   runner.config().vocab_size));
  }
  const int64_t total = static_cast<int64_t>(r.prompt.size()) + r.max_new_tokens;
  if (total > limits.context_tokens) {
    return absl::OutOfRangeError(
        absl::StrCat("prompt + max_new_tokens: ", r.prompt.size(), " + ", r.max_new_tokens, " = ",
                     total, " tokens, expected at most the context of ", limits.context_tokens));
  }
  if (total > mechanism->max_tokens().value_or(total)) {
    return absl::OutOfRangeError(absl::StrCat(
        "prompt + max_new_tokens: ", total, " tokens, expected at most ", *mechanism->max_tokens(),
        " with mechanism ", std::string(MechanismName(r.attention.mechanism))));
  }
  const int64_t bytes = HeldBytes(r, runner)(total - std::min(1, r.max_new_tokens));
  const int64_t most = std::min(limits.cache_bytes, runner.cache_budget_bytes(r.attention));
  if (bytes > most) {
    return absl::OutOfRangeError(
        absl::StrCat("prompt + max_new_tokens: ", total, " tokens of ", r.n, " choices may need ",
                     bytes, " bytes of cache, expected at most the whole cache of ", most));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
