#ifndef LOWKEY_ENGINE_RUNTIME_DRAFTS_LOOKUP_DRAFTER_H_
#define LOWKEY_ENGINE_RUNTIME_DRAFTS_LOOKUP_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/runtime/drafts/draft_pace.h"

namespace lowkey {

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
  // Gives up the last call's draft from its token `n` on.
  void Cut(int64_t n) { draft_.resize(static_cast<size_t>(n)); }
  // Keeps the last draft from being learnt from.
  void Forget() { draft_.clear(); }

 private:
  DraftPace pace_;
  std::vector<int32_t> tokens_;  // prompt and output
  std::vector<int32_t> draft_;
  int64_t n_output_ = 0;  // tokens before the draft
};

// Appends to `draft`, which is empty, at most `most` tokens by the rule of LookupDrafter.
void LookUp(absl::Span<const int32_t> tokens, int64_t most, std::vector<int32_t>& draft);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_DRAFTS_LOOKUP_DRAFTER_H_
