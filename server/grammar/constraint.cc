#include "server/grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/forced_text.h"

namespace lowkey::grammar {
namespace {

// Steps of all walks of one mask: about a tenth of a second.
constexpr int64_t kMaxSteps = 8'000'000;
// Bytes that are kept of a text, and those of them that the spelling of the next ones looks at.
constexpr size_t kMaxLastBytes = 256, kMaxBytesBefore = 32;
constexpr int64_t kMaxForcedTokens = 64;
// Of forced text, where more is forced than is asked for.
constexpr size_t kMaxBytesPerToken = 16;

}  // namespace

GrammarConstraint::GrammarConstraint(ConstraintParts parts)
    : parts_(std::move(parts)),
      walk_(*parts_.grammar, *parts_.vocabulary),
      stacks_({{{parts_.grammar->rule(parts_.grammar->root()).start, 0}}}),
      words_((static_cast<size_t>(parts_.vocabulary->vocab_size()) + 63) / 64) {}

std::unique_ptr<TokenConstraint> GrammarConstraint::Copy() const {
  auto copy = std::make_unique<GrammarConstraint>(parts_);
  copy->stacks_ = stacks_;
  copy->last_bytes_ = last_bytes_;
  copy->has_ended_ = has_ended_;
  return copy;
}

TopKey GrammarConstraint::KeyOf(const Frame& top) const {
  TopKey key;
  key.grammar = parts_.grammar->id();
  key.state = top.state;
  const Grammar::Rule& rule = parts_.grammar->rule(parts_.grammar->state(top.state).rule);
  if (!rule.is_counted) return key;
  // A token's bytes count no further than this.
  const int far = parts_.vocabulary->max_token_bytes() + 1;
  key.below_least = std::clamp(rule.least - top.count, 0, far);
  key.below_most = std::clamp(rule.most - top.count, 0, far);
  return key;
}

std::shared_ptr<const TopMask> GrammarConstraint::MaskOfTop(const Frame& top, int depth) {
  TopKey key = KeyOf(top);
  std::shared_ptr<const TopMask> found = parts_.cache->Find(key);
  if (found != nullptr && depth + found->deepest > kMaxDepth) {
    key.depth = depth;
    found = parts_.cache->Find(key);
  }
  if (found != nullptr) return found;
  auto mask = std::make_shared<TopMask>();
  mask->status = walk_.Run(
      {top}, key.depth, 0,
      [&](absl::Span<const int32_t> tokens) {
        mask->tokens.insert(mask->tokens.end(), tokens.begin(), tokens.end());
      },
      [&](int32_t node) { mask->escapes.push_back(node); });
  mask->n_steps = walk_.n_steps();
  mask->deepest = key.depth > 0 ? 0 : walk_.deepest();
  if (mask->tokens.size() > words_.size()) {
    mask->bits.resize(words_.size());
    for (int32_t token : mask->tokens) mask->bits[token >> 6] |= uint64_t{1} << (token & 63);
    mask->tokens = {};
  }
  mask->tokens.shrink_to_fit();
  parts_.cache->Keep(key, mask);
  // What was found without regard to the frames below does not hold so deep.
  if (key.depth == 0 && depth + mask->deepest > kMaxDepth) return MaskOfTop(top, depth);
  return mask;
}

// Adds the tokens below a node of the trie that a stack allows.
absl::Status GrammarConstraint::AddBelow(const Stack& below, int32_t node) {
  LK_RETURN_IF_ERROR(walk_.Run(
      below, 0, node,
      [this](absl::Span<const int32_t> tokens) {
        for (int32_t token : tokens) Allow(token);
      },
      [](int32_t) {}));
  return CountSteps(walk_.n_steps());
}

// Counts what a part of the mask takes, or took when it was found: the same text ends the same way,
// whatever is kept.
absl::Status GrammarConstraint::CountSteps(int64_t n_steps) {
  n_steps_ += n_steps;
  if (n_steps_ <= kMaxSteps) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("response_format: over ", kMaxSteps,
                   " steps for the tokens that may come next, expected at most that"));
}

// Adds the tokens that one stack allows; without frames the text may end.
absl::Status GrammarConstraint::AddStack(Stack stack) {
  for (;; stack.pop_back()) {
    if (stack.empty()) {
      for (int32_t token : parts_.vocabulary->end_tokens()) Allow(token);
      return absl::OkStatus();
    }
    const int depth = static_cast<int>(stack.size()) - 1;
    const std::shared_ptr<const TopMask> mask = MaskOfTop(stack.back(), depth);
    LK_RETURN_IF_ERROR(mask->status);
    LK_RETURN_IF_ERROR(CountSteps(mask->n_steps));
    for (int32_t token : mask->tokens) Allow(token);
    for (size_t i = 0; i < mask->bits.size(); ++i) words_[i] |= mask->bits[i];
    bool may_be_done = false;
    const Stack below(stack.begin(), stack.end() - 1);
    for (int32_t node : mask->escapes) {
      if (node == 0) {
        may_be_done = true;
        continue;
      }
      if (!below.empty()) LK_RETURN_IF_ERROR(AddBelow(below, node));
    }
    if (!may_be_done) return absl::OkStatus();
  }
}

absl::StatusOr<absl::Span<const uint64_t>> GrammarConstraint::Mask() {
  std::fill(words_.begin(), words_.end(), 0);
  n_steps_ = 0;
  if (!has_ended_) {
    for (const Stack& stack : stacks_) LK_RETURN_IF_ERROR(AddStack(stack));
  }
  if (std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; })) {
    return absl::FailedPreconditionError(
        has_ended_ ? "response_format: the text has ended, expected no further token"
                   : "response_format: no token of the vocabulary can continue the text");
  }
  return absl::MakeConstSpan(words_);
}

absl::Status GrammarConstraint::Advance(int32_t token) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("response_format: token ", token, " may not come here"));
  };
  if (has_ended_ || token < 0 || token >= parts_.vocabulary->vocab_size()) return refuse();
  if (parts_.vocabulary->IsEnd(token)) {
    if (!MayEnd()) return refuse();
    has_ended_ = true;
    return absl::OkStatus();
  }
  const std::string_view bytes = parts_.vocabulary->text(token);
  if (bytes.empty()) return refuse();
  std::vector<Stack> moved;
  LK_RETURN_IF_ERROR(walk_.Move(stacks_, bytes, moved));
  if (moved.empty()) return refuse();
  stacks_ = std::move(moved);
  // A control piece has no text, and tokenizers spell what follows it as a text of its own.
  if (bytes.starts_with(kControlByte)) {
    last_bytes_.clear();
  } else {
    last_bytes_.append(bytes);
  }
  if (last_bytes_.size() > kMaxLastBytes) {
    last_bytes_.erase(0, last_bytes_.size() - kMaxLastBytes);
  }
  return absl::OkStatus();
}

bool GrammarConstraint::MayEnd() { return walk_.MayEnd(stacks_); }

std::string GrammarConstraint::ForcedBytes(size_t max_bytes) {
  std::string forced;
  const auto no_guess = [](uint8_t) { return std::optional<std::string>(); };
  if (!has_ended_) walk_.AppendForced(stacks_, max_bytes, no_guess, forced);
  return forced;
}

std::vector<int32_t> GrammarConstraint::ForcedTokens(int64_t most) {
  if (parts_.tokenizer == nullptr || has_ended_ || most <= 0) return {};
  const auto n_most = static_cast<size_t>(std::min(most, kMaxForcedTokens));
  std::string forced;
  const auto guess = [&](uint8_t next) -> std::optional<std::string> {
    const std::string text = last_bytes_ + forced;
    const std::optional<std::string_view> space = GuessSpace(text, next);
    return space.has_value() ? std::optional<std::string>(*space) : std::nullopt;
  };
  walk_.AppendForced(stacks_, n_most * kMaxBytesPerToken, guess, forced);
  if (forced.empty()) return {};
  const std::string_view last = last_bytes_;
  return SpellForced(*parts_.tokenizer, *parts_.vocabulary,
                     last.substr(last.size() - std::min(last.size(), kMaxBytesBefore)), forced,
                     n_most);
}

}  // namespace lowkey::grammar
