#include "server/config/terminal/layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr size_t kStackedIndent = 4;
constexpr std::string_view kGap = "  ";

std::string Spaces(size_t n) { return std::string(n, ' '); }

// Returns the words of a command line; quoted words keep their spaces.
std::vector<std::string> CommandWords(std::string_view command) {
  std::vector<std::string> words(1);
  bool is_quoted = false;
  for (const char c : command) {
    if (c == '"') is_quoted = !is_quoted;
    if (c == ' ' && !is_quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

// Adds words to lines of at most `columns`.
class LineFiller {
 public:
  LineFiller(size_t indent, size_t columns) : indent_(indent), columns_(columns), at_(indent) {}

  void Add(std::string_view word) {
    const size_t width = DisplayWidth(word);
    if (!is_line_empty_ && at_ + 1 + width > columns_) Break();
    if (is_line_empty_ && !text_.empty()) text_ += Spaces(indent_);
    if (!is_line_empty_) text_ += ' ';
    at_ += width + (is_line_empty_ ? 0 : 1);
    is_line_empty_ = false;
    text_ += word;
  }

  void Break() {
    text_ += '\n';
    at_ = indent_;
    is_line_empty_ = true;
  }

  std::string Take() { return std::move(text_); }

 private:
  const size_t indent_, columns_;
  size_t at_;
  bool is_line_empty_ = true;
  std::string text_;
};

}  // namespace

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string Wrapped(std::string_view text, size_t indent, size_t columns) {
  LineFiller lines(indent, columns);
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !absl::ascii_isspace(text[end])) ++end;
    if (end > at) lines.Add(text.substr(at, end - at));
    if (text.substr(end).starts_with("\n\n")) {
      lines.Break();
      lines.Break();
    }
    at = end;
    while (at < text.size() && absl::ascii_isspace(text[at])) ++at;
  }
  return lines.Take();
}

std::string WrappedCommand(std::string_view command, size_t columns) {
  std::string text, line = " ";
  for (const std::string& word : CommandWords(command)) {
    // A line that goes on needs room for " \".
    if (DisplayWidth(line) + 1 + DisplayWidth(word) + 2 > columns && line.size() > 5) {
      absl::StrAppend(&text, line, " \\\n");
      line = Spaces(5);
    }
    absl::StrAppend(&line, " ", word);
  }
  return absl::StrCat(text, line);
}

size_t HeadWidth(const std::vector<Entry>& entries, size_t columns) {
  const size_t limit = columns / 5 * 2;
  size_t width = 6;
  for (const Entry& entry : entries) {
    const size_t head = DisplayWidth(entry.head);
    if (head <= limit) width = std::max(width, head);
  }
  return width;
}

std::string EntryLines(const std::vector<Entry>& entries, size_t head_width, size_t columns) {
  const size_t indent = head_width + kGap.size();
  std::string text;
  for (const Entry& entry : entries) {
    const size_t width = DisplayWidth(entry.head);
    text += entry.head;
    if (!entry.text.empty()) {
      text += width > head_width ? absl::StrCat("\n", Spaces(indent)) : Spaces(indent - width);
    }
    absl::StrAppend(&text, Wrapped(entry.text, indent, columns), "\n");
  }
  return text;
}

Table::Table(std::vector<std::string> titles, size_t name_width, size_t columns)
    : titles_(std::move(titles)), columns_(columns), widths_(titles_.size()) {
  Widen(titles_);
  widths_[0] = std::max(widths_[0], name_width);
}

void Table::Widen(const std::vector<std::string>& cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    widths_[i] = std::max(widths_[i], DisplayWidth(cells[i]));
  }
}

std::string Table::Row(const std::vector<std::string>& cells) const {
  const size_t whole =
      std::accumulate(widths_.begin(), widths_.end(), kGap.size() * (widths_.size() - 1));
  const bool is_stacked = whole > columns_;
  std::string text = cells[0];
  if (!is_stacked) text += Spaces(widths_[0] - std::min(widths_[0], DisplayWidth(cells[0])));
  size_t at = is_stacked ? columns_ : 0;
  for (size_t i = 1; i < cells.size(); ++i) {
    const bool is_broken = is_stacked && at + kGap.size() + widths_[i] > columns_;
    if (is_broken) text += '\n';
    const std::string gap = is_broken ? Spaces(kStackedIndent) : std::string(kGap);
    at = (is_broken ? 0 : at) + gap.size() + widths_[i];
    const size_t missing = widths_[i] - std::min(widths_[i], DisplayWidth(cells[i]));
    absl::StrAppend(&text, gap, Spaces(missing), cells[i]);
  }
  return text + "\n";
}

}  // namespace lowkey
