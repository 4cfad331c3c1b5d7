#ifndef LOWKEY_SERVER_CONFIG_TERMINAL_TERMINAL_H_
#define LOWKEY_SERVER_CONFIG_TERMINAL_TERMINAL_H_

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/config/flags.h"
#include "server/config/terminal/layout.h"

namespace lowkey {

// The commands print to terminals and files with these functions.

bool IsTerminal(std::FILE* file);

// Returns the width of the terminal behind `file`; absent for a file, or if it tells no width.
std::optional<size_t> TerminalColumns(std::FILE* file);

// Style says how a file shows text. Styles are ANSI sequences on a terminal, unless NO_COLOR is set
// or TERM is dumb; else empty.
struct Style {
  std::string_view dim, bold, green, reset;
  size_t columns = kUnlimitedColumns;  // to wrap at
};
Style StyleOf(std::FILE* file);

// Returns "0 B", "1.5 KiB", "12.0 MiB".
std::string BytesText(int64_t bytes);
// Returns "1,234,567".
std::string CountText(int64_t count);
// Returns "850 us", "12.3 ms", "4.56 s".
std::string DurationText(int64_t us);

// Returns lines of "name   value" with aligned and wrapped values; `style` dims the names.
std::string AlignedRows(const std::vector<std::pair<std::string, std::string>>& rows,
                        const Style& style);

// Writes a text to standard output at once.
void PrintNow(const std::string& text);

// Prints the titles of a table, dimmed.
void PrintHeader(const Table& table);

// Returns `text` with control characters other than newline and tab as U+FFFD, so that a model
// cannot move the cursor or set the title.
std::string TerminalSafe(std::string_view text);

// Returns "loading ███░░░  45%  4.5 MiB of 10.0 MiB" in fewer than `columns`, so that no terminal
// wraps it: the amounts are left out first, then the bar, then the end of the label. `counted`
// names the unit ("windows"); empty: bytes.
struct Progress {
  int64_t done = 0, total = 0;
};
std::string ProgressLine(std::string_view label, const Progress& progress, std::string_view counted,
                         size_t columns);

// Shows a progress line that overwrites itself on a terminal; silent elsewhere. Not thread-safe.
class ProgressBar {
 public:
  ProgressBar(std::FILE* file, std::string label, std::string_view counted = "");
  ~ProgressBar();  // clears the bar

  void Show(int64_t done, int64_t total);
  // Clears the line for other text; the next Show draws it again.
  void Clear();

 private:
  std::FILE* const file_;
  const std::string label_, counted_;
  const bool is_shown_;
  absl::Time last_ = absl::InfinitePast();
};

// Returns the positional arguments joined by spaces; without any, or if the only one is "-", all of
// standard input without a newline at its end. INVALID_ARGUMENT for more than `max_bytes` or an
// empty text.
absl::StatusOr<std::string> TextArgument(const FlagValues& flags, size_t max_bytes);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_TERMINAL_TERMINAL_H_
