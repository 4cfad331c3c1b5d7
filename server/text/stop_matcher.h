#ifndef LOWKEY_SERVER_TEXT_STOP_MATCHER_H_
#define LOWKEY_SERVER_TEXT_STOP_MATCHER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lowkey {

// Finds the first stop text in a text that arrives in pieces, wherever the pieces are cut. The
// matcher holds text back that may turn out to begin a stop text, at most the longest stop text
// less one byte. Neither the emitted text nor the match depends on the cuts: the match is the stop
// text that ends first, of several the longest. Thread-compatible.
class StopMatcher {
 public:
  struct Result {
    std::string text;             // safe to show
    std::optional<size_t> match;  // index of the stop text found; `text` ends before it
  };

  // No stop text is empty. Without stop texts everything passes.
  explicit StopMatcher(std::vector<std::string> stop_texts);

  // Must not be called after a match.
  Result Append(std::string_view piece);

  // Returns the text held back, when no more will come.
  std::string Flush();

  const std::string& stop_text(size_t index) const { return stop_texts_[index]; }

 private:
  std::optional<size_t> MatchEndingAt(size_t end) const;
  size_t HeldBytes() const;

  std::vector<std::string> stop_texts_;
  std::string held_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_STOP_MATCHER_H_
