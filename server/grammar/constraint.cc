#include "server/grammar/constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/forced_text.h"

namespace lowkey::grammar {
namespace {

// Steps of all walks of one mask: about a tenth of a second.
constexpr int64_t kMaxSteps = 8'000'000;
// Words or tokens of a part that cost as much to add to a mask as a step of a walk.
constexpr int64_t kWordsPerUnit = 8;
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
  if (place_.is_done) {
    copy->place_.is_done = true;
    copy->place_.status = place_.status;
    copy->words_ = words_;
  }
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
      {top}, key.depth, 0, [&](absl::Span<const int32_t> tokens) { AddTokens(tokens, *mask); },
      [&](int32_t node) { mask->escapes.push_back(node); });
  mask->n_steps = walk_.n_steps();
  n_work_ += walk_.n_steps();
  mask->deepest = key.depth > 0 ? 0 : walk_.deepest();
  mask->tokens.shrink_to_fit();
  parts_.cache->Keep(key, mask);
  // What was found without regard to the frames below does not hold so deep.
  if (key.depth == 0 && depth + mask->deepest > kMaxDepth) return MaskOfTop(top, depth);
  return mask;
}

// Adds tokens to a mask, which becomes one of bits when a list of its tokens would be longer.
void GrammarConstraint::AddTokens(absl::Span<const int32_t> tokens, TopMask& mask) const {
  if (mask.bits.empty()) {
    mask.tokens.insert(mask.tokens.end(), tokens.begin(), tokens.end());
    if (mask.tokens.size() <= words_.size()) return;
    mask.bits.resize(words_.size());
    tokens = mask.tokens;
  }
  for (int32_t token : tokens) mask.bits[token >> 6] |= uint64_t{1} << (token & 63);
  mask.tokens = {};
}

void GrammarConstraint::Allow(const TopMask& mask) {
  for (int32_t token : mask.tokens) Allow(token);
  for (size_t i = 0; i < mask.bits.size(); ++i) words_[i] |= mask.bits[i];
  n_work_ += 1 + static_cast<int64_t>(mask.tokens.size() + mask.bits.size()) / kWordsPerUnit;
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

void GrammarConstraint::BeginMask() {
  std::fill(words_.begin(), words_.end(), 0);
  place_ = {};
  n_steps_ = 0;
}

// Adds the tokens that stay above the frames below the top frame, and begins with those that lead
// into the frames below.
absl::Status GrammarConstraint::AddTop(const Stack& stack, size_t n_frames) {
  const int depth = static_cast<int>(n_frames) - 1;
  const std::shared_ptr<const TopMask> top = MaskOfTop(stack[n_frames - 1], depth);
  LK_RETURN_IF_ERROR(top->status);
  LK_RETURN_IF_ERROR(CountSteps(top->n_steps));
  Allow(*top);
  const bool goes_below =
      std::any_of(top->escapes.begin(), top->escapes.end(), [](int32_t node) { return node != 0; });
  if (depth > 0 && goes_below) {
    TopKey key = KeyOf(stack[n_frames - 1]);
    key.depth = depth;
    key.below.assign(stack.begin(), stack.begin() + depth);
    const std::shared_ptr<const TopMask> below = parts_.cache->Find(key);
    if (below == nullptr) {
      place_.key = std::move(key);
      place_.below = std::make_shared<TopMask>();
      place_.escape = 0;
      place_.top = top;
      return absl::OkStatus();
    }
    LK_RETURN_IF_ERROR(CountSteps(below->n_steps));
    Allow(*below);
  }
  EndTop(*top, n_frames);
  return absl::OkStatus();
}

// Follows the next escape into the frames below.
absl::Status GrammarConstraint::AddEscape() {
  const std::vector<int32_t>& escapes = place_.top->escapes;
  if (place_.escape < escapes.size()) {
    const int32_t node = escapes[place_.escape++];
    if (node == 0) return absl::OkStatus();
    const absl::Status status = walk_.Run(
        place_.key.below, 0, node,
        [this](absl::Span<const int32_t> tokens) { AddTokens(tokens, *place_.below); },
        [](int32_t) {});
    n_work_ += walk_.n_steps() + static_cast<int64_t>(place_.key.below.size());
    LK_RETURN_IF_ERROR(status);
    place_.below->n_steps += walk_.n_steps();
    return CountSteps(walk_.n_steps());
  }
  place_.below->tokens.shrink_to_fit();
  Allow(*place_.below);
  parts_.cache->Keep(place_.key, std::exchange(place_.below, nullptr));
  EndTop(*std::exchange(place_.top, nullptr), place_.key.below.size() + 1);
  return absl::OkStatus();
}

// Goes on with the frame below if the top frame may be done now, and else with the next stack.
void GrammarConstraint::EndTop(const TopMask& top, size_t n_frames) {
  const bool may_be_done =
      std::find(top.escapes.begin(), top.escapes.end(), 0) != top.escapes.end();
  place_.n_frames = may_be_done ? std::optional<size_t>(n_frames - 1) : std::nullopt;
  if (!may_be_done) ++place_.stack;
}

// Adds the next part of the mask; a stack without frames lets the text end.
absl::Status GrammarConstraint::AddNext() {
  if (place_.top != nullptr) return AddEscape();
  if (has_ended_ || place_.stack == stacks_.size()) {
    place_.is_done = true;
    return absl::OkStatus();
  }
  const Stack& stack = stacks_[place_.stack];
  const size_t n_frames = place_.n_frames.value_or(stack.size());
  if (n_frames > 0) return AddTop(stack, n_frames);
  for (int32_t token : parts_.vocabulary->end_tokens()) Allow(token);
  place_.n_frames = std::nullopt;
  ++place_.stack;
  return absl::OkStatus();
}

MaskProgress GrammarConstraint::Prepare(int64_t most_work) {
  n_work_ = 0;
  try {
    while (!place_.is_done && n_work_ < most_work) {
      place_.status = AddNext();
      if (!place_.status.ok()) place_.is_done = true;
    }
  } catch (...) {  // no memory: a part may be half done
    BeginMask();
    throw;
  }
  return {.is_ready = place_.is_done, .n_work = n_work_};
}

absl::StatusOr<absl::Span<const uint64_t>> GrammarConstraint::Mask() {
  (void)Prepare(std::numeric_limits<int64_t>::max());
  LK_RETURN_IF_ERROR(place_.status);
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
    BeginMask();
    return absl::OkStatus();
  }
  const std::string_view bytes = parts_.vocabulary->text(token);
  if (bytes.empty()) return refuse();
  std::vector<Stack> moved;
  LK_RETURN_IF_ERROR(walk_.Move(stacks_, bytes, moved));
  if (moved.empty()) return refuse();
  stacks_ = std::move(moved);
  BeginMask();
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
