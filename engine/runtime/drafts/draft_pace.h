#ifndef LOWKEY_ENGINE_RUNTIME_DRAFTS_DRAFT_PACE_H_
#define LOWKEY_ENGINE_RUNTIME_DRAFTS_DRAFT_PACE_H_

#include <cstdint>

#include "absl/types/span.h"

namespace lowkey {

// Decides from one sequence's past drafts alone how long its next draft is. A draft that was right
// is followed by one of twice its length, a wrong one by one that is a token longer than its right
// part. A sequence of whose drafts too few tokens are right drafts nothing for a while, and then
// tries again with a short draft.
class DraftPace {
 public:
  static constexpr int64_t kLongestDraft = 10;
  static constexpr int64_t kLongestRest = 64;  // steps

  // Begins a step. Returns the length of the step's draft; 0 while the sequence rests.
  int64_t NextLength();
  // Notes a draft of n_drafted >= 1 tokens, the first n_right of which were right.
  void Note(int64_t n_drafted, int64_t n_right);
  // Notes a draft by the tokens that came instead; nothing where one of the two is empty.
  void NoteDraft(absl::Span<const int32_t> draft, absl::Span<const int32_t> came);

 private:
  int64_t length_ = 2;
  int64_t n_resting_ = 0;               // steps that are left of a rest
  int64_t rest_ = 4;                    // the length of the next rest
  double n_drafted_ = 0, n_right_ = 0;  // sums over drafts; older ones count less and less
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_DRAFTS_DRAFT_PACE_H_
