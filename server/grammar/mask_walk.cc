#include "server/grammar/mask_walk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lowkey::grammar {

absl::Status MaskWalk::CheckWork() const {
  if (!stacks_.is_overfull() && stacks_.n_steps() <= kMaxSteps) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("response_format: too much stays open at once, expected at most ",
                   Stacks::kMaxOpen, " readings of the text and ", kMaxSteps, " steps a mask"));
}

// Returns the bytes that lead a state to itself, each once for every count that is left; none for a
// state that calls rules or may be done.
const Vocabulary::Bits& MaskWalk::LoopOf(int32_t state) {
  if (state == loop_state_) return loop_;
  loop_state_ = state;
  loop_ = {};
  const Grammar::State& s = stacks_.grammar().state(state);
  if (s.n_calls > 0 || s.accepts) return loop_;
  for (const ByteEdge& edge : stacks_.grammar().bytes(s)) {
    if (edge.target != state || (edge.flags & kFromLeast) != 0) continue;
    for (int byte = edge.first; byte <= edge.last; ++byte) loop_.Add(static_cast<uint8_t>(byte));
  }
  return loop_;
}

absl::Status MaskWalk::Move(const std::vector<Stack>& stacks, std::string_view bytes,
                            std::vector<Stack>& moved) {
  moved.clear();
  std::vector<int32_t> open, ready;
  for (const Stack& stack : stacks) {
    stacks_.Clear(0);
    open = {stacks_.Add(stack)};
    for (char c : bytes) {
      ready.clear();
      for (int32_t node : open) stacks_.Expand(node, ready);
      open.clear();
      for (int32_t node : ready) stacks_.Move(node, static_cast<uint8_t>(c), open);
    }
    LK_RETURN_IF_ERROR(CheckWork());
    for (int32_t node : open) {
      Stack frames = stacks_.FramesOf(node);
      if (moved.size() < kMaxStacks && std::find(moved.begin(), moved.end(), frames) == moved.end())
        moved.push_back(std::move(frames));
    }
  }
  return absl::OkStatus();
}

bool MaskWalk::MayEnd(const std::vector<Stack>& stacks) {
  std::vector<int32_t> ready;
  return std::any_of(stacks.begin(), stacks.end(), [&](const Stack& stack) {
    stacks_.Clear(0);
    ready.clear();
    return stacks_.Expand(stacks_.Add(stack), ready);
  });
}

// Adds the bytes that a node goes on with.
void MaskWalk::AddBytes(int32_t ready, Vocabulary::Bits& bytes) {
  const Grammar& grammar = stacks_.grammar();
  for (const ByteEdge& edge : grammar.bytes(grammar.state(stacks_.state_of(ready)))) {
    moved_.clear();
    stacks_.Move(ready, edge.first, moved_);
    if (moved_.empty()) continue;  // closed, by a counter or by the depth
    for (int byte = edge.first; byte <= edge.last; ++byte) bytes.Add(static_cast<uint8_t>(byte));
  }
}

void MaskWalk::AppendForced(const std::vector<Stack>& stacks, size_t max_bytes, GuessSpaceFn guess,
                            std::string& forced) {
  stacks_.Clear(0);
  std::vector<int32_t> open, ready;
  for (const Stack& stack : stacks) open.push_back(stacks_.Add(stack));
  std::string guessed;  // bytes to come, the next one last
  for (size_t i = 0; i < max_bytes; ++i) {
    ready.clear();
    bool may_end = false;
    for (int32_t node : open) may_end |= stacks_.Expand(node, ready);
    if (may_end || ready.empty() || stacks_.is_overfull()) return;
    if (stacks_.n_steps() > kMaxForcedSteps) return;
    Vocabulary::Bits bytes;
    for (int32_t node : ready) AddBytes(node, bytes);
    if (guessed.empty()) {
      const std::optional<uint8_t> only = bytes.OnlyByte();
      const std::optional<uint8_t> next = only.has_value() ? only : bytes.OnlyByteButSpace();
      if (!next.has_value()) return;
      std::optional<std::string> space = only.has_value() ? std::string() : guess(*next);
      if (!space.has_value()) return;
      std::reverse(space->begin(), space->end());
      guessed = static_cast<char>(*next) + *space;
    }
    const auto byte = static_cast<uint8_t>(guessed.back());
    guessed.pop_back();
    if (!bytes.Has(byte)) return;
    open.clear();
    for (int32_t node : ready) stacks_.Move(node, byte, open);
    forced.push_back(static_cast<char>(byte));
  }
}

}  // namespace lowkey::grammar
