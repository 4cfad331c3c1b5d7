#include "engine/runtime/lookup_drafter.h"

#include <algorithm>

namespace lowkey {
namespace {

// The share of drafted tokens that must be right for drafts to pay. A row more costs a step of one
// stream a tenth to a third of its time.
constexpr double kWorthShare = 0.3;
// Tokens that must have been drafted before a share is believed.
constexpr double kEnoughDrafted = 4;
constexpr double kFade = 0.8;
constexpr int64_t kShortestDraft = 2;
constexpr int64_t kShortestRest = 4;

}  // namespace

int64_t DraftPace::NextLength() {
  if (n_resting_ > 0) {
    --n_resting_;
    return 0;
  }
  return length_;
}

void DraftPace::Note(int64_t n_drafted, int64_t n_right) {
  const bool was_right = n_right == n_drafted;
  length_ = std::min(was_right ? std::max(length_, 2 * n_drafted) : n_right + 1, kLongestDraft);
  n_drafted_ = kFade * n_drafted_ + static_cast<double>(n_drafted);
  n_right_ = kFade * n_right_ + static_cast<double>(n_right);
  if (n_right_ >= kWorthShare * n_drafted_) {
    if (n_drafted_ >= kEnoughDrafted) rest_ = kShortestRest;
    return;
  }
  if (n_drafted_ < kEnoughDrafted) return;
  n_resting_ = rest_;
  rest_ = std::min(2 * rest_, kLongestRest);
  length_ = kShortestDraft;
  // The next draft decides anew.
  n_drafted_ = (kEnoughDrafted - kShortestDraft) / kFade;
  n_right_ = kWorthShare * n_drafted_;
}

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

void LookupDrafter::Learn(absl::Span<const int32_t> output) {
  const auto grown = output.subspan(n_output_);
  if (draft_.empty() || grown.empty()) return;
  const auto [wrong, other] =
      std::mismatch(draft_.begin(), draft_.end(), grown.begin(), grown.end());
  pace_.Note(static_cast<int64_t>(draft_.size()), wrong - draft_.begin());
}

absl::Span<const int32_t> LookupDrafter::Draft(absl::Span<const int32_t> prompt,
                                               absl::Span<const int32_t> output, int64_t most) {
  Learn(output);
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
