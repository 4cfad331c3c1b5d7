#include "server/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace lowkey {

StopMatcher::StopMatcher(std::vector<std::string> stop_texts)
    : stop_texts_(std::move(stop_texts)) {}

// Returns the longest stop text that is a suffix of held_[0, end).
std::optional<size_t> StopMatcher::MatchEndingAt(size_t end) const {
  const std::string_view seen(held_.data(), end);
  std::optional<size_t> best;
  for (size_t i = 0; i < stop_texts_.size(); ++i) {
    const bool longer = !best.has_value() || stop_texts_[i].size() > stop_texts_[*best].size();
    if (longer && seen.ends_with(stop_texts_[i])) best = i;
  }
  return best;
}

// Returns the length of the longest suffix of held_ that is a proper prefix of a stop text.
size_t StopMatcher::HeldBytes() const {
  size_t longest = 0;
  for (const std::string& stop : stop_texts_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

StopMatcher::Result StopMatcher::Append(std::string_view piece) {
  const size_t n_old = held_.size();
  held_ += piece;
  for (size_t end = n_old + 1; end <= held_.size(); ++end) {
    if (const std::optional<size_t> match = MatchEndingAt(end); match.has_value()) {
      Result result{held_.substr(0, end - stop_texts_[*match].size()), match};
      held_.clear();
      return result;
    }
  }
  const size_t n_safe = held_.size() - HeldBytes();
  Result result{held_.substr(0, n_safe), std::nullopt};
  held_.erase(0, n_safe);
  return result;
}

std::string StopMatcher::Flush() { return std::exchange(held_, std::string()); }

}  // namespace lowkey
