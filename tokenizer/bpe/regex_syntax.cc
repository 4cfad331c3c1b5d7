#include "tokenizer/bpe/regex_syntax.h"

#include <algorithm>
#include <array>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// White_Space, which is Oniguruma's \s; PCRE2's holds U+180E too. For use within brackets.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNonSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

constexpr int kMaxCount = 1000;  // of a repeat
constexpr std::string_view kCallout = "(?C)";

constexpr std::array<std::string_view, 8> kGroups = {"(?:",  "(?i:", "(?=", "(?!",
                                                     "(?<=", "(?<!", "(?>", "("};

constexpr std::string_view kCategories =
    " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp"
    " C Cc Cf Cs Co Cn ";

class Translator {
 public:
  explicit Translator(std::string_view regex) : regex_(regex) {}

  absl::StatusOr<std::string> Run() {
    while (position_ < regex_.size()) LK_RETURN_IF_ERROR(Element());
    return std::move(out_);
  }

 private:
  std::string_view Rest() const { return regex_.substr(position_); }

  void Copy(size_t n_bytes) {
    out_.append(regex_.substr(position_, n_bytes));
    position_ += n_bytes;
  }

  absl::Status Unsupported(std::string_view construct) const {
    return absl::UnimplementedError(absl::StrCat("\"", absl::CHexEscape(std::string(construct)),
                                                 "\" at byte ", position_, " is not supported"));
  }

  absl::Status Element() {
    atom_ = out_.size();
    switch (regex_[position_]) {
      case '(':
        return OpenGroup();
      case ')':
        Copy(1);
        if (!Rest().empty() && IsQuantifier()) return Quantifier();
        AddCallout(out_.size());
        return absl::OkStatus();
      case '|':
      case '^':
      case '$':
        Copy(1);
        return absl::OkStatus();
      case '[':
        LK_RETURN_IF_ERROR(Class());
        break;
      case '\\':
        LK_RETURN_IF_ERROR(Escape({.in_class = false}));
        break;
      case '*':
      case '+':
      case '?':
      case '{':
        return Unsupported(Rest().substr(0, 1));  // nothing to repeat, or a literal brace
      default:
        Copy(1);
        // Copies the rest of a character beyond ASCII.
        while (!Rest().empty() && (regex_[position_] & 0xC0) == 0x80) Copy(1);
    }
    return !Rest().empty() && IsQuantifier() ? Quantifier() : absl::OkStatus();
  }

  bool IsQuantifier() const {
    return std::string_view("*+?{").find(regex_[position_]) != std::string_view::npos;
  }

  absl::Status OpenGroup() {
    for (const std::string_view group : kGroups) {
      if (!Rest().starts_with(group)) continue;
      if (group == "(" && (Rest().starts_with("(?") || Rest().starts_with("(*"))) break;
      AddCallout(out_.size());
      Copy(group.size());
      return absl::OkStatus();
    }
    return Unsupported(Rest().substr(0, 4));
  }

  absl::Status Quantifier() {
    const bool is_counted = regex_[position_] == '{';
    const bool is_group = out_.ends_with(')') && atom_ + 1 == out_.size();
    if (regex_[position_] != '?' && !is_group) AddCallout(atom_);
    if (is_counted) {
      const size_t end = Rest().find('}');
      const std::string_view counts = Rest().substr(1, end == std::string_view::npos ? 0 : end - 1);
      // Oniguruma and PCRE2 differ on counts without a lower bound.
      if (counts.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(counts[0])) ||
          counts.find_first_not_of("0123456789,") != std::string_view::npos) {
        return Unsupported(Rest().substr(0, 8));
      }
      // A repeat that fails takes its steps between two callouts.
      int count = 0;
      for (const char c : counts) {
        count = c == ',' ? 0 : 10 * count + (c - '0');
        if (count > kMaxCount) return Unsupported(Rest().substr(0, 8));
      }
      Copy(end + 1);
    } else {
      Copy(1);
    }
    // "{2}+" repeats once more in one and is possessive in the other.
    const bool is_lazy = Rest().starts_with('?');
    if (is_lazy || (!is_counted && Rest().starts_with('+'))) Copy(1);
    if (!Rest().empty() && IsQuantifier()) return Unsupported(Rest().substr(0, 1));
    AddCallout(out_.size());
    return absl::OkStatus();
  }

  // Adds a callout unless there is one just before.
  void AddCallout(size_t at) {
    if (!std::string_view(out_).substr(0, at).ends_with(kCallout)) out_.insert(at, kCallout);
  }

  absl::Status Class() {
    Copy(1);
    if (Rest().starts_with('^')) Copy(1);
    if (Rest().starts_with(']')) return Unsupported("[]");
    while (!Rest().empty() && regex_[position_] != ']') {
      if (regex_[position_] == '[' || Rest().starts_with("&&")) {
        return Unsupported(Rest().substr(0, 2));
      }
      if (regex_[position_] == '\\') {
        LK_RETURN_IF_ERROR(Escape({.in_class = true}));
      } else {
        Copy(1);
      }
    }
    if (!Rest().empty()) Copy(1);
    return absl::OkStatus();
  }

  struct Where {
    bool in_class = false;
  };

  absl::Status Escape(Where where) {
    const unsigned char c =
        position_ + 1 < regex_.size() ? static_cast<unsigned char>(regex_[position_ + 1]) : 0;
    if (c == 's' || c == 'S') {
      const std::string_view members = c == 's' || !where.in_class ? kSpace : kNonSpace;
      const std::string_view open = c == 's' ? "[" : "[^";
      absl::StrAppend(&out_, where.in_class ? "" : std::string(open), std::string(members),
                      where.in_class ? "" : "]");
      position_ += 2;
      return absl::OkStatus();
    }
    if (c == 'p' || c == 'P') return Property();
    if (c == 'x' || c == 'u') return CodePoint();
    if (c != 0 && (absl::ascii_ispunct(c) || c == ' ' || c == 'd' || c == 'D' || c == 'r' ||
                   c == 'n' || c == 't' || c == 'f')) {
      Copy(2);
      return absl::OkStatus();
    }
    return Unsupported(Rest().substr(0, 2));
  }

  // Takes general categories: other names differ between the two.
  absl::Status Property() {
    const size_t end = Rest().find('}');
    if (Rest().size() < 4 || Rest()[2] != '{' || end == std::string_view::npos || end > 5) {
      return Unsupported(Rest().substr(0, 8));
    }
    const std::string name = absl::StrCat(" ", std::string(Rest().substr(3, end - 3)), " ");
    if (name.size() < 3 || kCategories.find(name) == std::string_view::npos) {
      return Unsupported(Rest().substr(0, end + 1));
    }
    Copy(end + 1);
    return absl::OkStatus();
  }

  // "\x41" (below 0x80: above it, a byte in one and a character in the other), "\x{4e00}",
  // "\u4e00".
  absl::Status CodePoint() {
    const bool is_braced = Rest().starts_with("\\x{");
    const size_t begin = is_braced ? 3 : 2;
    size_t n_digits = 0;
    while (n_digits < 8 && begin + n_digits < Rest().size() &&
           absl::ascii_isxdigit(static_cast<unsigned char>(Rest()[begin + n_digits]))) {
      ++n_digits;
    }
    if (!is_braced) n_digits = std::min<size_t>(n_digits, regex_[position_ + 1] == 'x' ? 2 : 4);
    const std::string_view digits = Rest().substr(begin, n_digits);
    const bool is_whole =
        is_braced
            ? n_digits > 0 && Rest().substr(begin + n_digits).starts_with('}')
            : (regex_[position_ + 1] == 'x' ? n_digits == 2 && digits[0] < '8' : n_digits == 4);
    if (!is_whole) return Unsupported(Rest().substr(0, begin + n_digits));
    absl::StrAppend(&out_, "\\x{", std::string(digits), "}");
    position_ += begin + n_digits + (is_braced ? 1 : 0);
    return absl::OkStatus();
  }

  const std::string_view regex_;
  size_t position_ = 0;
  size_t atom_ = 0;  // where the last atom begins in out_
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> TranslateRegex(std::string_view regex) {
  return Translator(regex).Run();
}

}  // namespace lowkey
