#ifndef LOWKEY_ENGINE_SAMPLER_TOKEN_CONSTRAINT_H_
#define LOWKEY_ENGINE_SAMPLER_TOKEN_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lowkey {

// MaskProgress says what a call of TokenConstraint::Prepare did.
struct MaskProgress {
  bool is_ready = true;  // Mask has nothing left to compute
  int64_t n_work = 0;    // units of work that the call did, of some 10 ns each
};

// Says which tokens may come next in one sequence. What it says depends on the tokens that it was
// advanced by alone. Not thread-safe; a copy is a sequence of its own, so that a copy that was made
// earlier is the way back.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Returns a set of tokens: bit i % 64 of word i / 64 is set if token i may come next. The span
  // has (vocab_size + 63) / 64 words and is valid until the next call of Mask or Advance. At least
  // one bit is set.
  // FAILED_PRECONDITION if no token may come; other errors of the implementation.
  virtual absl::StatusOr<absl::Span<const uint64_t>> Mask() = 0;

  // Works on the mask before the next token until Mask can return it at once, or until at least
  // `most_work` units are done: a call ends with the part of the mask that it is at. A call with
  // most_work <= 0 does nothing. What a unit is depends on the tokens alone, and not on time. Mask
  // returns the errors. A constraint whose masks are cheap is always ready.
  virtual MaskProgress Prepare(int64_t most_work) {
    (void)most_work;
    return {};
  }

  // Takes the token that came next. INVALID_ARGUMENT, with nothing taken, if it may not come.
  virtual absl::Status Advance(int32_t token) = 0;

  virtual std::unique_ptr<TokenConstraint> Copy() const = 0;

  // Returns at most `most` tokens that probably come next because the text has hardly a choice,
  // none where it has one. They are a guess: an engine may compute them ahead, and draws from the
  // masks all the same.
  virtual std::vector<int32_t> ForcedTokens(int64_t most) {
    (void)most;
    return {};
  }
};

// Makes the constraints of a request's choices. Immutable, safe to share between threads.
class TokenConstraintFactory {
 public:
  virtual ~TokenConstraintFactory() = default;
  // The vocabulary that masks are made for.
  virtual int32_t vocab_size() const = 0;
  // Returns a constraint that no token has come to yet.
  virtual std::unique_ptr<TokenConstraint> Begin() const = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_TOKEN_CONSTRAINT_H_
