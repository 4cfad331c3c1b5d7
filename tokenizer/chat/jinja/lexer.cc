#include "tokenizer/chat/jinja/lexer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/values/text.h"
#include "tokenizer/utf8.h"

namespace lowkey::jinja {
namespace {

// Names are hashed wherever they are looked up.
constexpr size_t kMaxNameBytes = 256;
constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "*",
                                           "/",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool IsNameStart(char c) { return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsNamePart(char c) { return IsNameStart(c) || IsDigit(c); }

// Makes every line end "\n" and drops the last one.
std::string NormalizeLines(std::string_view source) {
  std::string lines;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    lines += source[i] == '\r' ? '\n' : source[i];
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (position_ < source_.size()) LK_RETURN_IF_ERROR(ReadDataAndTag());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  // Finds the next "{{", "{%" or "{#"; npos: there is none.
  size_t FindTag() const {
    for (size_t at = source_.find('{', position_); at < source_.size();
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  absl::Status ReadDataAndTag() {
    const size_t tag = FindTag();
    if (tag == std::string_view::npos) {
      AddData(position_, source_.size());
      Advance(source_.size());
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    AddData(position_, DataEnd(tag, kind == '{'));
    Advance(tag);
    const int line = line_;
    Advance(tag + 2);
    if (Peek() == '-' || Peek() == '+') Advance(position_ + 1);
    if (kind == '#') return SkipComment(line);
    if (kind == '%' && IsRaw()) return ReadRaw(line);
    Add(kind == '{' ? TokenKind::kOutputBegin : TokenKind::kBlockBegin, "");
    return ReadExpression(kind == '{', line);
  }

  // Returns where the text before a tag ends once the tag has taken white space away.
  size_t DataEnd(size_t tag, bool is_output) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const std::string_view text = source_.substr(position_, tag - position_);
    if (sign == '-') return position_ + StripSpace(text, StripSide::kRight).end;
    if (sign == '+' || is_output) return tag;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
    // The tag takes the indent away only if it is the first on its line.
    const bool begins_line = line_start > 0 || position_ == 0 || source_[position_ - 1] == '\n';
    const std::string_view indent = text.substr(line_start);
    const bool is_blank = StripSpace(indent, StripSide::kRight).end == 0;
    return begins_line && is_blank ? position_ + line_start : tag;
  }

  absl::Status SkipComment(int line) {
    const size_t end = source_.find("#}", position_);
    if (end == std::string_view::npos) return ErrorAt(line, "comment {# does not end, expected #}");
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2);
    SkipAfterTag(sign, /*is_output=*/false);
    return absl::OkStatus();
  }

  // Skips the white space that the end of a tag takes away.
  void SkipAfterTag(char sign, bool is_output) {
    if (sign == '-') {
      Advance(position_ + StripSpace(source_.substr(position_), StripSide::kLeft).begin);
    } else if (sign != '+' && !is_output && Peek() == '\n') {
      Advance(position_ + 1);
    }
  }

  // Returns whether the tag that begins here, behind "{%", is raw.
  bool IsRaw() const {
    std::string_view rest = source_.substr(position_);
    rest.remove_prefix(
        StripSpace(rest.substr(0, std::min<size_t>(rest.size(), 64)), StripSide::kLeft).begin);
    return rest.starts_with("raw") && (rest.size() == 3 || !IsNamePart(rest[3]));
  }

  // Reads "raw %} ... {% endraw %}".
  absl::Status ReadRaw(int line) {
    const size_t close = source_.find("%}", position_);
    if (close == std::string_view::npos) return ErrorAt(line, "tag {% does not end, expected %}");
    const bool is_stripped = source_[close - 1] == '-';
    Advance(close + 2);
    if (is_stripped) SkipAfterTag('-', false);
    size_t end = 0;
    for (size_t tag = source_.find("{%", position_); tag != std::string_view::npos;
         tag = source_.find("{%", tag + 2)) {
      if (end < tag) end = source_.find("%}", tag);  // one end may be that of many beginnings
      if (end == std::string_view::npos) break;
      std::string_view name = source_.substr(tag + 2, end - tag - 2);
      if (name.starts_with('-') || name.starts_with('+')) name.remove_prefix(1);
      const char sign = name.empty() ? '\0' : name.back();
      if (sign == '-' || sign == '+') name.remove_suffix(1);
      const ByteRange word = StripSpace(name, StripSide::kBoth);
      if (name.substr(word.begin, word.end - word.begin) != "endraw") continue;
      AddData(position_, DataEnd(tag, false));
      Advance(end + 2);
      SkipAfterTag(sign, false);
      return absl::OkStatus();
    }
    return ErrorAt(line, "{% raw %} does not end, expected {% endraw %}");
  }

  absl::Status ReadExpression(bool is_output, int line) {
    const std::string_view end = is_output ? "}}" : "%}";
    std::vector<char> open;
    while (true) {
      SkipSpace();
      if (position_ >= source_.size()) {
        return ErrorAt(line, is_output ? "tag {{ does not end, expected }}"
                                       : "tag {% does not end, expected %}");
      }
      const char sign = Peek();
      const bool has_sign = sign == '-' || (sign == '+' && !is_output);
      if (open.empty() && source_.substr(position_ + (has_sign ? 1 : 0)).starts_with(end)) {
        Add(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd, "");
        Advance(position_ + (has_sign ? 3 : 2));
        SkipAfterTag(sign, is_output);
        return absl::OkStatus();
      }
      LK_RETURN_IF_ERROR(ReadToken(open));
    }
  }

  absl::Status ReadToken(std::vector<char>& open) {
    const char c = Peek();
    if (IsNameStart(c)) {
      const size_t end = EndOf(position_, IsNamePart);
      if (end - position_ > kMaxNameBytes) {
        return ErrorAt(line_, absl::StrCat("name of ", end - position_, " bytes, expected at most ",
                                           kMaxNameBytes));
      }
      AddAndAdvance(TokenKind::kName, std::string(source_.substr(position_, end - position_)), end);
      return absl::OkStatus();
    }
    if (IsDigit(c)) return ReadNumber();
    if (c == '"' || c == '\'') return ReadString();
    for (std::string_view op : kOperators) {
      if (!source_.substr(position_).starts_with(op)) continue;
      LK_RETURN_IF_ERROR(Balance(op, open));
      AddAndAdvance(TokenKind::kOperator, std::string(op), position_ + op.size());
      return absl::OkStatus();
    }
    return ErrorAt(
        line_,
        absl::StrCat("unexpected character \"",
                     std::string(source_.substr(position_, CharacterBytes(source_, position_))),
                     "\""));
  }

  absl::Status Balance(std::string_view op, std::vector<char>& open) const {
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(op) != std::string_view::npos) {
      open.push_back(kClosing[kOpening.find(op)]);
    } else if (kClosing.find(op) != std::string_view::npos) {
      if (open.empty() || open.back() != op[0]) {
        return ErrorAt(
            line_, absl::StrCat("unexpected \"", std::string(op), "\"",
                                open.empty() ? std::string()
                                             : absl::StrCat(", expected \"",
                                                            std::string(1, open.back()), "\"")));
      }
      open.pop_back();
    }
    return absl::OkStatus();
  }

  absl::Status ReadNumber() {
    const auto is_digit_or_underscore = [](char c) { return IsDigit(c) || c == '_'; };
    size_t end = EndOf(position_, is_digit_or_underscore);
    bool is_float = false;
    if (end + 1 < source_.size() && source_[end] == '.' && IsDigit(source_[end + 1])) {
      is_float = true;
      end = EndOf(end + 1, is_digit_or_underscore);
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t digits = end + 1;
      if (digits < source_.size() && (source_[digits] == '+' || source_[digits] == '-')) ++digits;
      if (digits < source_.size() && IsDigit(source_[digits])) {
        is_float = true;
        end = EndOf(digits, is_digit_or_underscore);
      }
    }
    std::string number(source_.substr(position_, end - position_));
    if (end < source_.size() && IsNamePart(source_[end])) {
      return ErrorAt(line_, absl::StrCat("number ", number,
                                         ": followed by a letter, expected a decimal number"));
    }
    std::erase(number, '_');
    AddAndAdvance(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(number), end);
    return absl::OkStatus();
  }

  absl::Status ReadString() {
    const char quote = Peek();
    const int line = line_;
    std::string value;
    size_t at = position_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] == '\\' && at + 1 < source_.size()) {
        LK_RETURN_IF_ERROR(ReadEscape(at, value));
      } else {
        value += source_[at++];
      }
    }
    if (at >= source_.size()) return ErrorAt(line, "string does not end");
    AddAndAdvance(TokenKind::kString, std::move(value), at + 1);
    return absl::OkStatus();
  }

  // Reads one of Python's escapes from the backslash at `at`, which moves past it.
  absl::Status ReadEscape(size_t& at, std::string& value) const {
    constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
    const char name = source_[at + 1];
    at += 2;
    if (const size_t i = kNames.find(name); i != std::string_view::npos) {
      value += kValues[i];
      return absl::OkStatus();
    }
    if (name == '\n') return absl::OkStatus();
    const size_t n_digits = name == 'x' ? 2 : name == 'u' ? 4 : name == 'U' ? 8 : 0;
    if (name == 'N' || (name >= '0' && name <= '7')) {
      return ErrorAt(line_,
                     absl::StrCat("string escape \\", std::string(1, name), ": not supported"));
    }
    if (n_digits == 0) {
      // Python keeps the backslash of an unknown escape.
      value += {'\\', name};
      return absl::OkStatus();
    }
    char32_t code_point = 0;
    for (size_t i = 0; i < n_digits; ++i, ++at) {
      if (at >= source_.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(source_[at]))) {
        return ErrorAt(line_, "string escape: too few hexadecimal digits");
      }
      const char c = absl::ascii_tolower(static_cast<unsigned char>(source_[at]));
      code_point = code_point << 4 | static_cast<char32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
      return ErrorAt(line_, "string escape: not a character");
    }
    AppendCodePoint(code_point, value);
    return absl::OkStatus();
  }

  template <typename Predicate>
  size_t EndOf(size_t begin, Predicate is_part) const {
    while (begin < source_.size() && is_part(source_[begin])) ++begin;
    return begin;
  }

  void SkipSpace() {
    while (position_ < source_.size() && IsSpace(CodePointAt(source_, position_))) {
      Advance(position_ + CharacterBytes(source_, position_));
    }
  }

  char Peek() const { return position_ < source_.size() ? source_[position_] : '\0'; }

  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(position_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    position_ = to;
  }

  void AddData(size_t begin, size_t end) {
    if (begin < end) Add(TokenKind::kData, std::string(source_.substr(begin, end - begin)));
  }
  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void AddAndAdvance(TokenKind kind, std::string text, size_t to) {
    Add(kind, std::move(text));
    Advance(to);
  }

  const std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status ErrorAt(int line, std::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", std::string(message)));
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(source.size(), " bytes, expected at most ", kMaxTemplateBytes));
  }
  if (const std::optional<size_t> at = FindInvalidUtf8(source)) {
    return absl::InvalidArgumentError(absl::StrCat("byte ", *at, ": not UTF-8"));
  }
  const std::string lines = NormalizeLines(source);
  return Lexer(lines).Run();
}

}  // namespace lowkey::jinja
