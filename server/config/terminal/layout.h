#ifndef LOWKEY_SERVER_CONFIG_TERMINAL_LAYOUT_H_
#define LOWKEY_SERVER_CONFIG_TERMINAL_LAYOUT_H_

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lowkey {

// These functions lay text out for a number of columns. Each UTF-8 character counts as one column.

inline constexpr size_t kUnlimitedColumns = std::numeric_limits<size_t>::max();

size_t DisplayWidth(std::string_view text);

// Breaks `text` at white space into lines of at most `columns`, without a newline at the end; empty
// lines stay. The first line is taken to begin at column `indent`, the others begin with as many
// spaces. A longer word has a line of its own.
std::string Wrapped(std::string_view text, size_t indent, size_t columns);

// Returns a command line, indented by two, that is broken with `\` outside of quotes.
std::string WrappedCommand(std::string_view command, size_t columns);

struct Entry {
  std::string head, text;
};

// Returns the width of the widest head that leaves its text enough of `columns`.
size_t HeadWidth(const std::vector<Entry>& entries, size_t columns);

// Returns a line per entry: the head, filled up to `head_width`, and the wrapped text. A wider head
// has a line of its own.
std::string EntryLines(const std::vector<Entry>& entries, size_t head_width, size_t columns);

// Aligns rows of a name and numbers that are printed one by one. If a row is wider than the
// terminal, the name has a line of its own and the numbers flow over indented lines.
class Table {
 public:
  // The first title is the name's. `name_width` is the width of the widest name.
  Table(std::vector<std::string> titles, size_t name_width, size_t columns);

  // Widens the columns to the cells of a row.
  void Widen(const std::vector<std::string>& cells);

  std::string Header() const { return Row(titles_); }
  std::string Row(const std::vector<std::string>& cells) const;

 private:
  const std::vector<std::string> titles_;
  const size_t columns_;
  std::vector<size_t> widths_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_TERMINAL_LAYOUT_H_
