#ifndef LOWKEY_SERVER_GRAMMAR_CONSTRAINT_H_
#define LOWKEY_SERVER_GRAMMAR_CONSTRAINT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler/token_constraint.h"
#include "server/grammar/automaton/grammar.h"
#include "server/grammar/mask_cache.h"
#include "server/grammar/mask_walk.h"
#include "server/grammar/vocabulary.h"

namespace lowkey::grammar {

// ConstraintParts holds what the constraints of one grammar share. It is immutable but for the
// cache, which is thread-safe.
struct ConstraintParts {
  std::shared_ptr<const Grammar> grammar;
  std::shared_ptr<const Vocabulary> vocabulary;
  std::shared_ptr<MaskCache> cache;  // of this vocabulary
  // Spells forced text, and outlives the constraints; nullptr: ForcedTokens returns none.
  const Tokenizer* tokenizer = nullptr;
};

// Lets through the tokens whose bytes keep the text within a grammar, and the end tokens where the
// text may end.
class GrammarConstraint : public TokenConstraint {
 public:
  explicit GrammarConstraint(ConstraintParts parts);

  // Also RESOURCE_EXHAUSTED for a grammar that leaves too many readings of a text open.
  absl::StatusOr<absl::Span<const uint64_t>> Mask() override;
  // A part of a mask is a kept result or at most two walks of the trie (MaskWalk::kMaxSteps). Work
  // counts the steps of walks, and little for what is kept.
  MaskProgress Prepare(int64_t most_work) override;
  absl::Status Advance(int32_t token) override;
  // The copy has the mask too, if it is ready.
  std::unique_ptr<TokenConstraint> Copy() const override;
  // Spells what ForcedBytes returns, and goes on past white space that the grammar leaves open as
  // the text had it before (GuessSpace).
  std::vector<int32_t> ForcedTokens(int64_t most) override;

  // Returns whether the text may end here.
  bool MayEnd();
  // Returns the bytes that every text must go on with from here, at most max_bytes of them.
  std::string ForcedBytes(size_t max_bytes = 1024);

 private:
  // The part of the mask that comes next: a stack, of which the frames above n_frames are done.
  struct Place {
    size_t stack = 0;
    std::optional<size_t> n_frames = std::nullopt;  // nullopt: all of the stack's
    bool is_done = false;                           // the whole mask is
    absl::Status status = {};
    // Set while the escapes of a top frame are followed into the frames below it.
    std::shared_ptr<const TopMask> top = nullptr;
    std::shared_ptr<TopMask> below = nullptr;  // what they gave so far
    TopKey key = {};                           // of `below`
    size_t escape = 0;                         // the next one
  };

  void BeginMask();
  absl::Status AddNext();
  absl::Status AddTop(const Stack& stack, size_t n_frames);
  absl::Status AddEscape();
  void EndTop(const TopMask& top, size_t n_frames);
  std::shared_ptr<const TopMask> MaskOfTop(const Frame& top, int depth);
  TopKey KeyOf(const Frame& top) const;
  void AddTokens(absl::Span<const int32_t> tokens, TopMask& mask) const;
  void Allow(const TopMask& mask);
  void Allow(int32_t token) { words_[token >> 6] |= uint64_t{1} << (token & 63); }
  absl::Status CountSteps(int64_t n_steps);

  const ConstraintParts parts_;
  MaskWalk walk_;
  std::vector<Stack> stacks_;
  std::string last_bytes_;  // of the text
  bool has_ended_ = false;
  Place place_;          // of the mask before the next token
  int64_t n_steps_ = 0;  // of the walks of this mask, those of kept masks included
  int64_t n_work_ = 0;   // units that were done since the last Prepare began
  std::vector<uint64_t> words_;
};

class GrammarConstraintFactory : public TokenConstraintFactory {
 public:
  explicit GrammarConstraintFactory(ConstraintParts parts) : parts_(std::move(parts)) {}
  int32_t vocab_size() const override { return parts_.vocabulary->vocab_size(); }
  std::unique_ptr<TokenConstraint> Begin() const override {
    return std::make_unique<GrammarConstraint>(parts_);
  }
  const Grammar& grammar() const { return *parts_.grammar; }

 private:
  const ConstraintParts parts_;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_CONSTRAINT_H_
