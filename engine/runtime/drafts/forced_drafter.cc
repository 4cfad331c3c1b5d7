#include "engine/runtime/drafts/forced_drafter.h"

#include <algorithm>
#include <memory>

namespace lowkey {

absl::Span<const int32_t> ForcedDrafter::Draft(TokenConstraint& constraint,
                                               absl::Span<const int32_t> output, int64_t most) {
  pace_.NoteDraft(draft_, output.subspan(static_cast<size_t>(n_output_)));
  draft_.clear();
  n_output_ = static_cast<int64_t>(output.size());
  // The length of a forced text says nothing about the next one's.
  if (pace_.NextLength() == 0 || most <= 0) return draft_;
  most = std::min(most, kLongestDraft);
  draft_ = constraint.ForcedTokens(most);
  const int64_t n_allowed = CountAllowed(constraint, draft_);
  draft_.resize(static_cast<size_t>(std::min(n_allowed, most)));
  return draft_;
}

int64_t CountAllowed(const TokenConstraint& constraint, absl::Span<const int32_t> tokens) {
  if (tokens.empty()) return 0;
  const std::unique_ptr<TokenConstraint> ahead = constraint.Copy();
  int64_t n_allowed = 0;
  for (const int32_t token : tokens) {
    if (!ahead->Advance(token).ok()) break;
    ++n_allowed;
  }
  return n_allowed;
}

}  // namespace lowkey
