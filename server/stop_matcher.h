#ifndef LOWKEY_SERVER_STOP_MATCHER_H_
#define LOWKEY_SERVER_STOP_MATCHER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowkey {

// Finds the first of some stop texts in a text that arrives in pieces, wherever the pieces are cut.
// Text that may still turn out to begin a stop text is held back; it is never more than the longest
// stop text less one byte. What is emitted, and which stop text matches, does not depend on the
// cuts: the match is the one that ends first (of those the longest). Thread-compatible.
class StopMatcher {
 public:
  struct Result {
    std::string text;             // safe to show
    std::optional<size_t> match;  // index of the stop text found; `text` ends before it
  };

  // Each stop text is not empty. None: everything passes.
  explicit StopMatcher(std::vector<std::string> stop_texts);

  // Must not be called after a match.
  Result Append(std::string_view piece);

  // The text held back at the end, when no more will come.
  std::string Flush();

  const std::string& stop_text(size_t index) const { return stop_texts_[index]; }

 private:
  std::optional<size_t> MatchEndingAt(size_t end) const;
  size_t HeldBytes() const;

  std::vector<std::string> stop_texts_;
  std::string held_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_STOP_MATCHER_H_
