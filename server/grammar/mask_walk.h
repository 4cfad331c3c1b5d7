#ifndef LOWKEY_SERVER_GRAMMAR_MASK_WALK_H_
#define LOWKEY_SERVER_GRAMMAR_MASK_WALK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "server/grammar/stacks.h"
#include "server/grammar/vocabulary.h"

namespace lowkey::grammar {

// Walks the vocabulary's trie along a grammar's stacks. Not thread-safe.
class MaskWalk {
 public:
  // Steps of one walk: some milliseconds.
  static constexpr int64_t kMaxSteps = 1'000'000;
  // Steps after which no forced text is looked for: some tens of microseconds.
  static constexpr int64_t kMaxForcedSteps = 10'000;

  // Both must outlive this.
  MaskWalk(const Grammar& grammar, const Vocabulary& vocabulary)
      : stacks_(grammar), vocabulary_(vocabulary), levels_(vocabulary.max_token_bytes() + 2) {}

  // Takes the tokens that some stack allows. `stack` lies on a context of so many frames.
  // Hands runs of tokens to `allow`, and to `escape` the trie nodes, with more bytes below them,
  // where the stack may be done. Looks at the nodes below `from` alone. RESOURCE_EXHAUSTED for a
  // grammar that leaves too much open.
  template <typename Allow, typename Escape>
  absl::Status Run(const Stack& stack, int n_context_frames, int32_t from, Allow allow,
                   Escape escape);

  // Returns the stacks after the bytes of a token, at most kMaxStacks; none: it may not come.
  // RESOURCE_EXHAUSTED as above.
  static constexpr size_t kMaxStacks = 16;
  absl::Status Move(const std::vector<Stack>& stacks, std::string_view bytes,
                    std::vector<Stack>& moved);

  // Returns whether some stack may be done now.
  bool MayEnd(const std::vector<Stack>& stacks);
  // Appends the bytes that any text must go on with, at most max_bytes, and fewer for a grammar
  // that leaves very much open. Where only white space
  // leaves a choice before the next byte, `guess(next byte)` decides between its spellings; without
  // a guess the forced text ends there.
  using GuessSpaceFn = absl::FunctionRef<std::optional<std::string>(uint8_t next)>;
  void AppendForced(const std::vector<Stack>& stacks, size_t max_bytes, GuessSpaceFn guess,
                    std::string& forced);

  int deepest() const { return stacks_.deepest(); }
  int64_t n_steps() const { return stacks_.n_steps(); }  // of the last Run

 private:
  // The stacks at a depth of the trie that wait for a byte.
  struct Level {
    std::vector<int32_t> ready = {};
    size_t mark = 0;  // nodes beyond it belong to deeper levels
  };

  absl::Status CheckWork() const;
  void AddBytes(int32_t ready, Vocabulary::Bits& bytes);
  const Vocabulary::Bits& LoopOf(int32_t state);

  Stacks stacks_;
  const Vocabulary& vocabulary_;
  std::vector<Level> levels_;
  std::vector<int32_t> moved_;
  int32_t loop_state_ = -1;
  Vocabulary::Bits loop_;  // the bytes that leave loop_state_ as it is, but for the counter
};

template <typename Allow, typename Escape>
absl::Status MaskWalk::Run(const Stack& stack, int n_context_frames, int32_t from, Allow allow,
                           Escape escape) {
  stacks_.Clear(n_context_frames);
  const int base = vocabulary_.depth(from);
  const auto enter = [&](int depth, int32_t node, absl::Span<const int32_t> open) {
    Level& level = levels_[static_cast<size_t>(depth)];
    level.ready.clear();
    bool is_done = false;
    for (int32_t top : open) is_done |= stacks_.Expand(top, level.ready);
    level.mark = stacks_.mark();
    if (is_done) escape(node);
    return !level.ready.empty();
  };
  const int32_t top = stacks_.Add(stack);
  if (top == Stacks::kContext) return absl::OkStatus();
  if (!enter(base, from, {&top, 1})) return CheckWork();
  for (int32_t node = from + 1; node < vocabulary_.end(from);) {
    const int depth = vocabulary_.depth(node);
    const Level& above = levels_[static_cast<size_t>(depth - 1)];
    stacks_.Rewind(above.mark);
    moved_.clear();
    for (int32_t ready : above.ready) stacks_.Move(ready, vocabulary_.byte(node), moved_);
    if (moved_.empty()) {
      node = vocabulary_.end(node);
      continue;
    }
    const Vocabulary::Bits* below = vocabulary_.bytes_below(node);
    if (below != nullptr && moved_.size() == 1 &&
        below->IsWithin(LoopOf(stacks_.state_of(moved_[0]))) &&
        below->height <= stacks_.RoomOf(moved_[0])) {
      allow(vocabulary_.tokens_from(node));
      node = vocabulary_.end(node);
      continue;
    }
    allow(vocabulary_.tokens(node));
    LK_RETURN_IF_ERROR(CheckWork());
    const bool goes_on = !vocabulary_.is_leaf(node) && enter(depth, node, moved_);
    node = goes_on ? node + 1 : vocabulary_.end(node);
  }
  return CheckWork();
}

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_MASK_WALK_H_
