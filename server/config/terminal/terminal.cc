#include "server/config/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/clock.h"

namespace lowkey {
namespace {

constexpr size_t kBarCells = 30, kFewestBarCells = 8;
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(50);

}  // namespace

bool IsTerminal(std::FILE* file) { return isatty(fileno(file)) == 1; }

std::optional<size_t> TerminalColumns(std::FILE* file) {
  winsize size{};
  if (ioctl(fileno(file), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

Style StyleOf(std::FILE* file) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool is_refused = no_color != nullptr && *no_color != '\0';
  const bool is_dumb = term == nullptr || std::string_view(term) == "dumb";
  const size_t columns = TerminalColumns(file).value_or(kUnlimitedColumns);
  if (is_refused || is_dumb || !IsTerminal(file)) return {"", "", "", "", columns};
  return {"\033[2m", "\033[1m", "\033[32m", "\033[0m", columns};
}

std::string BytesText(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return absl::StrCat(bytes, " B");
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string CountText(int64_t count) {
  std::string digits = absl::StrCat(count);
  const int64_t first = count < 0 ? 1 : 0;
  for (int64_t i = static_cast<int64_t>(digits.size()) - 3; i > first; i -= 3) {
    digits.insert(static_cast<size_t>(i), 1, ',');
  }
  return digits;
}

std::string DurationText(int64_t us) {
  if (us < 1000) return absl::StrCat(us, " us");
  if (us < 1000000) return absl::StrFormat("%.1f ms", static_cast<double>(us) / 1e3);
  return absl::StrFormat("%.2f s", static_cast<double>(us) / 1e6);
}

std::string AlignedRows(const std::vector<std::pair<std::string, std::string>>& rows,
                        const Style& style) {
  size_t width = 0;
  for (const auto& [name, value] : rows) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : rows) {
    absl::StrAppend(&text, std::string(style.dim), name, std::string(style.reset),
                    std::string(width + 2 - name.size(), ' '),
                    Wrapped(value, width + 2, style.columns), "\n");
  }
  return text;
}

void PrintNow(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void PrintHeader(const Table& table) {
  const Style style = StyleOf(stdout);
  PrintNow(absl::StrCat(std::string(style.dim), table.Header(), std::string(style.reset)));
}

std::string TerminalSafe(std::string_view text) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    // The other control characters, U+0080..U+009F, are C2 80..C2 9F in UTF-8.
    const bool is_c1 =
        byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    const bool is_c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    if (is_c0 || is_c1) {
      safe += "\xef\xbf\xbd";
      i += is_c1 ? 1 : 0;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

std::string ProgressLine(std::string_view label, const Progress& progress, std::string_view counted,
                         size_t columns) {
  const double share = std::clamp(
      static_cast<double>(progress.done) / static_cast<double>(progress.total), 0.0, 1.0);
  const std::string percent = absl::StrFormat(" %3.0f%%", share * 100);
  std::string amounts =
      counted.empty()
          ? absl::StrCat("  ", BytesText(progress.done), " of ", BytesText(progress.total))
          : absl::StrCat("  ", CountText(progress.done), " of ", CountText(progress.total), " ",
                         std::string(counted));
  // A terminal may wrap a line as soon as its last column is written.
  const size_t room = std::max<size_t>(columns, 8) - 1;
  const size_t label_width = DisplayWidth(label);
  if (label_width + percent.size() > room) {
    return absl::StrCat(std::string(label.substr(0, room - percent.size())), percent);
  }
  size_t rest = room - label_width - percent.size();
  if (rest < amounts.size() + 1 + kFewestBarCells) amounts.clear();
  rest -= amounts.size();
  std::string bar;
  if (rest > kFewestBarCells) {
    const size_t n_cells = std::min(kBarCells, rest - 1);
    const auto n_full = static_cast<size_t>(share * static_cast<double>(n_cells));
    bar = " ";
    for (size_t i = 0; i < n_cells; ++i) bar += i < n_full ? "█" : "░";
  }
  return absl::StrCat(std::string(label), bar, percent, amounts);
}

ProgressBar::ProgressBar(std::FILE* file, std::string label, std::string_view counted)
    : file_(file), label_(std::move(label)), counted_(counted), is_shown_(IsTerminal(file)) {}

ProgressBar::~ProgressBar() { Clear(); }

void ProgressBar::Clear() {
  if (is_shown_) std::fputs("\r\033[K", file_);
}

void ProgressBar::Show(int64_t done, int64_t total) {
  const absl::Time now = SteadyNow();
  if (!is_shown_ || total <= 0 || (done < total && now - last_ < kRedrawInterval)) return;
  last_ = now;
  const std::string line =
      ProgressLine(label_, {done, total}, counted_, TerminalColumns(file_).value_or(80));
  std::fprintf(file_, "\r%s\033[K", line.c_str());
  std::fflush(file_);
}

absl::StatusOr<std::string> TextArgument(const FlagValues& flags, size_t max_bytes) {
  const std::vector<std::string>& words = flags.positional();
  std::string text = absl::StrJoin(words, " ");
  if (words.empty() || text == "-") {
    if (words.empty() && IsTerminal(stdin)) {
      return absl::InvalidArgumentError("no text: give it as an argument or on standard input");
    }
    text.clear();
    std::array<char, 65536> chunk;
    while (text.size() <= max_bytes) {
      const size_t n = std::fread(chunk.data(), 1, chunk.size(), stdin);
      if (n == 0) break;
      text.append(chunk.data(), n);
    }
    if (text.ends_with('\n')) {
      text.pop_back();
      if (text.ends_with('\r')) text.pop_back();
    }
  }
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: over ", CountText(static_cast<int64_t>(max_bytes)), " bytes"));
  }
  if (text.empty()) return absl::InvalidArgumentError("text: empty, expected 1 byte or more");
  return text;
}

}  // namespace lowkey
