#include "tokenizer/bpe/rewriter.h"

#include <utf8proc.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

absl::Status ApplyStep(const Prepend& prepend, Section& section, PatternBudget& budget) {
  if (section.text.empty()) return absl::OkStatus();
  LK_RETURN_IF_ERROR(Rewriter::CheckSize(section.text.size() + prepend.content.size()));
  LK_RETURN_IF_ERROR(budget.TakeBytes(section.text.size() + prepend.content.size()));
  section.text.insert(0, prepend.content);
  if (!section.literal.empty()) section.literal.insert(0, prepend.content.size(), 0);
  return absl::OkStatus();
}

// The most bytes of a text that become one byte in a Unicode form: a mathematical letter of 4 bytes
// becomes one of ASCII, and three such characters become one of 2 or 3 bytes.
constexpr size_t kMaxUnicodeShrink = 4;

int OptionsOf(UnicodeForm form) {
  switch (form) {
    case UnicodeForm::kNfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case UnicodeForm::kNfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case UnicodeForm::kNfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_COMPOSE;
    case UnicodeForm::kNfkd:
      break;
  }
  return UTF8PROC_STABLE | UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE;
}

using CodePoints = std::vector<utf8proc_int32_t>;

CodePoints Decompose(std::string_view text, utf8proc_option_t options) {
  constexpr utf8proc_ssize_t kMaxPerCharacter = 32;  // 18, as Unicode stands
  CodePoints decomposed;
  decomposed.reserve(text.size());
  const auto* rest = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto* const end = rest + text.size();
  while (rest < end) {
    utf8proc_int32_t code = 0;
    rest += utf8proc_iterate(rest, end - rest, &code);
    utf8proc_int32_t parts[kMaxPerCharacter];
    const utf8proc_ssize_t n =
        utf8proc_decompose_char(code, parts, kMaxPerCharacter, options, nullptr);
    decomposed.insert(decomposed.end(), parts, parts + std::min(n, kMaxPerCharacter));
  }
  return decomposed;
}

// Puts combining marks in their order. utf8proc would take quadratic time.
void OrderMarks(CodePoints& codes) {
  const auto rank = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  const auto is_mark = [&](utf8proc_int32_t code) { return rank(code) != 0; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, [&](auto a, auto b) { return rank(a) < rank(b); });
    begin = end;
  }
}

absl::Status ApplyStep(UnicodeForm form, Section& section, PatternBudget& budget) {
  section.literal.clear();
  const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
  if (std::all_of(section.text.begin(), section.text.end(), is_ascii)) return absl::OkStatus();
  const auto options = static_cast<utf8proc_option_t>(OptionsOf(form));
  CodePoints codes = Decompose(section.text, options);
  OrderMarks(codes);
  const auto n = static_cast<utf8proc_ssize_t>(codes.size());
  codes.resize(static_cast<size_t>(utf8proc_normalize_utf32(codes.data(), n, options)));
  section.text.clear();
  for (const utf8proc_int32_t code : codes) {
    AppendCodePoint(static_cast<char32_t>(code), section.text);
  }
  LK_RETURN_IF_ERROR(budget.TakeBytes(section.text.size()));
  return Rewriter::CheckSize(section.text.size());
}

absl::Status ApplyStep(const Replace& replace, Section& section, PatternBudget& budget) {
  return ReplaceMatches(replace, section, budget);
}

}  // namespace

absl::Status ReplaceMatches(const Replace& replace, Section& section, PatternBudget& budget) {
  Section rewritten;
  size_t copied = 0;  // bytes of section.text
  const bool has_literal = !section.literal.empty();
  const auto copy_until = [&](size_t end) {
    rewritten.text.append(section.text, copied, end - copied);
    if (has_literal) rewritten.literal.append(section.literal, copied, end - copied);
    copied = end;
  };
  PatternSearch search(replace.pattern, budget);
  LK_RETURN_IF_ERROR(search.ForEachMatch(section.text, [&](size_t begin, size_t end) {
    // A text that is too long already need not grow.
    if (rewritten.text.size() > Rewriter::kMaxRewrittenBytes) return;
    copy_until(begin);
    rewritten.text.append(replace.content);
    if (has_literal) {
      rewritten.literal.append(replace.content.size(), section.HasLiteral(begin, end) ? 1 : 0);
    }
    copied = end;
  }));
  copy_until(section.text.size());
  LK_RETURN_IF_ERROR(Rewriter::CheckSize(rewritten.text.size()));
  LK_RETURN_IF_ERROR(budget.TakeBytes(rewritten.text.size()));
  section.text = std::move(rewritten.text);
  section.literal = std::move(rewritten.literal);
  return absl::OkStatus();
}

absl::Status Rewriter::Apply(Section& section, PatternBudget& budget) const {
  for (const RewriteStep& step : steps_) {
    LK_RETURN_IF_ERROR(
        std::visit([&](const auto& one) { return ApplyStep(one, section, budget); }, step));
  }
  return absl::OkStatus();
}

absl::Status Rewriter::CheckSize(size_t n_bytes) {
  if (n_bytes <= kMaxRewrittenBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("text: over ", kMaxRewrittenBytes, " bytes once it is normalized"));
}

bool Rewriter::HasUnicodeForm() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const RewriteStep& step) {
    return std::holds_alternative<UnicodeForm>(step);
  });
}

std::optional<size_t> MaxShrink(const Replace& replace) {
  const std::optional<size_t> n_bytes = replace.pattern.match_bytes();
  if (!n_bytes.has_value() || replace.content.empty()) return std::nullopt;
  return (*n_bytes + replace.content.size() - 1) / replace.content.size();
}

std::optional<size_t> Rewriter::MaxShrink() const {
  size_t product = 1;
  for (const RewriteStep& step : steps_) {
    if (const auto* const replace = std::get_if<Replace>(&step)) {
      const std::optional<size_t> factor = lowkey::MaxShrink(*replace);
      if (!factor.has_value()) return std::nullopt;
      product *= *factor;
    } else if (std::holds_alternative<UnicodeForm>(step)) {
      product *= kMaxUnicodeShrink;
    }
  }
  return product;
}

}  // namespace lowkey
