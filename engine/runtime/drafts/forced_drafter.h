#ifndef LOWKEY_ENGINE_RUNTIME_DRAFTS_FORCED_DRAFTER_H_
#define LOWKEY_ENGINE_RUNTIME_DRAFTS_FORCED_DRAFTER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/runtime/drafts/draft_pace.h"
#include "engine/sampler/token_constraint.h"

namespace lowkey {

// Drafts the next tokens of one sequence where its constraint leaves hardly a choice
// (TokenConstraint::ForcedTokens). A model may spell the forced text with other tokens than the
// usual ones: a sequence of whose drafts too few tokens are right rests as DraftPace says.
class ForcedDrafter {
 public:
  static constexpr int64_t kLongestDraft = 16;

  // Drafts at most `most` tokens that may follow the output, which only grows from call to call;
  // `constraint` has been advanced by all of it. Learns from the output how much of the last draft
  // was right. The draft is valid until the next call.
  absl::Span<const int32_t> Draft(TokenConstraint& constraint, absl::Span<const int32_t> output,
                                  int64_t most);
  // Keeps the last draft from being learnt from.
  void Forget() { draft_.clear(); }

 private:
  DraftPace pace_;
  std::vector<int32_t> draft_;
  int64_t n_output_ = 0;  // tokens before the draft
};

// Returns how many of the tokens, from the first one on, the constraint lets come.
int64_t CountAllowed(const TokenConstraint& constraint, absl::Span<const int32_t> tokens);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_DRAFTS_FORCED_DRAFTER_H_
