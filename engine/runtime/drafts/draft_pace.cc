#include "engine/runtime/drafts/draft_pace.h"

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

void DraftPace::NoteDraft(absl::Span<const int32_t> draft, absl::Span<const int32_t> came) {
  if (draft.empty() || came.empty()) return;
  const auto [wrong, other] = std::mismatch(draft.begin(), draft.end(), came.begin(), came.end());
  Note(static_cast<int64_t>(draft.size()), wrong - draft.begin());
}

}  // namespace lowkey
