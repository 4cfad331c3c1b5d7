#ifndef LOWKEY_ENGINE_RUNTIME_LOOKUP_DRAFTER_H_
#define LOWKEY_ENGINE_RUNTIME_LOOKUP_DRAFTER_H_

#include <cstdint>
#include <vector>

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

 private:
  int64_t length_ = 2;
  int64_t n_resting_ = 0;               // steps that are left of a rest
  int64_t rest_ = 4;                    // the length of the next rest
  double n_drafted_ = 0, n_right_ = 0;  // sums over drafts; older ones count less and less
};

// Drafts the next tokens of one sequence by prompt lookup: the tokens that followed its last tokens
// where these came before, in the prompt or in the output. Text that repeats itself or its prompt
// (code, extracts, tables, corrections) is drafted well; other text is not.
class LookupDrafter {
 public:
  // The place with the longest match counts, among those where the last tokens came before, and the
  // latest among equals. Longer matches are not told apart.
  static constexpr int64_t kLongestMatch = 6;

  // Drafts at most `most` tokens that may follow prompt and output, both of which only grow from
  // call to call. Learns from the output how much of the last draft was right.
  absl::Span<const int32_t> Draft(absl::Span<const int32_t> prompt,
                                  absl::Span<const int32_t> output, int64_t most);

  // The last call's draft.
  absl::Span<const int32_t> draft() const { return draft_; }

 private:
  void Learn(absl::Span<const int32_t> output);

  DraftPace pace_;
  std::vector<int32_t> tokens_;  // prompt and output
  std::vector<int32_t> draft_;
  int64_t n_output_ = 0;  // tokens before the draft
};

// Appends to `draft`, which is empty, at most `most` tokens by the rule of LookupDrafter.
void LookUp(absl::Span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_LOOKUP_DRAFTER_H_
