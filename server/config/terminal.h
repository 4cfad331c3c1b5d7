#ifndef LOWKEY_SERVER_CONFIG_TERMINAL_H_
#define LOWKEY_SERVER_CONFIG_TERMINAL_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/config/flags.h"

namespace lowkey {

// What commands print with.

bool IsTerminal(std::FILE* file);

// Styles are ANSI sequences on a terminal, unless NO_COLOR is set or TERM is dumb; else empty.
struct Style {
  std::string_view dim, bold, green, reset;
};
Style StyleOf(std::FILE* file);

// "0 B", "1.5 KiB", "12.0 MiB".
std::string BytesText(int64_t bytes);
// "1,234,567".
std::string CountText(int64_t count);
// "850 us", "12.3 ms", "4.56 s".
std::string DurationText(int64_t us);

// Lines of "name   value" with the values aligned, the names dimmed by `style`.
std::string AlignedRows(const std::vector<std::pair<std::string, std::string>>& rows,
                        const Style& style);

// Text fit for a terminal: control characters but newline and tab become U+FFFD, so that a model
// cannot move the cursor or set the title.
std::string TerminalSafe(std::string_view text);

// A bar that overwrites itself on a terminal; silent elsewhere. Not thread-safe.
class ProgressBar {
 public:
  ProgressBar(std::FILE* file, std::string label);
  ~ProgressBar();  // clears the bar

  void Show(int64_t done, int64_t total);

 private:
  std::FILE* const file_;
  const std::string label_;
  const bool is_shown_;
  absl::Time last_ = absl::InfinitePast();
};

// The text to work on: the positional arguments joined by spaces, or all of standard input when
// there are none or the only one is "-". INVALID_ARGUMENT: over `max_bytes`, or nothing at all.
absl::StatusOr<std::string> TextArgument(const FlagValues& flags, size_t max_bytes);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_TERMINAL_H_
