#include "engine/runtime/drafts/lookup_drafter.h"

#include <algorithm>

namespace lowkey {
void LookUp(absl::Span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < 2 || most <= 0) return;
  int64_t longest = 0, next = 0;
  for (int64_t end = n - 1; end > 0 && longest < LookupDrafter::kLongestMatch; --end) {
    if (tokens[end - 1] != tokens[n - 1]) continue;
    int64_t length = 1;
    while (length < LookupDrafter::kLongestMatch && length < end &&
           tokens[end - 1 - length] == tokens[n - 1 - length]) {
      ++length;
    }
    if (length <= longest) continue;
    longest = length;
    next = end;
  }
  if (longest == 0) return;
  // Past the known tokens the draft goes on with itself: a loop is drafted round and round.
  for (int64_t i = 0; i < most; ++i) {
    const int64_t from = next + i;
    draft.push_back(from < n ? tokens[from] : draft[from - n]);
  }
}

absl::Span<const int32_t> LookupDrafter::Draft(absl::Span<const int32_t> prompt,
                                               absl::Span<const int32_t> output, int64_t most) {
  pace_.NoteDraft(draft_, output.subspan(n_output_));
  draft_.clear();
  const auto n_known =
      static_cast<int64_t>(tokens_.size() - std::min(tokens_.size(), prompt.size()));
  if (tokens_.empty()) tokens_.assign(prompt.begin(), prompt.end());
  tokens_.insert(tokens_.end(), output.begin() + n_known, output.end());
  n_output_ = static_cast<int64_t>(output.size());
  LookUp(tokens_, std::min(most, pace_.NextLength()), draft_);
  return draft_;
}

}  // namespace lowkey
