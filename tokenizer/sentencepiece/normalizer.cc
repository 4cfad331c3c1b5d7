#include "tokenizer/sentencepiece/normalizer.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {

Normalizer::Unit Normalizer::NormalizePrefix(std::string_view text) const {
  const std::optional<PieceTrie::Match> verbatim = verbatim_.LongestPrefix(text);
  if (verbatim.has_value()) return {text.substr(0, verbatim->n_bytes), verbatim->n_bytes};
  if (charsmap_.has_value()) {
    const std::optional<Charsmap::Match> match = charsmap_->LongestMatch(text);
    if (match.has_value()) return {match->replacement, match->n_bytes};
  }
  const size_t n_bytes = Utf8Length(text);
  return {text.substr(0, n_bytes), n_bytes};
}

size_t Normalizer::LeadingSpaceBytes(std::string_view text) const {
  size_t n_bytes = 0;
  while (n_bytes < text.size()) {
    const Unit unit = NormalizePrefix(text.substr(n_bytes));
    if (unit.replacement != " ") break;
    n_bytes += unit.n_bytes;
  }
  return n_bytes;
}

absl::Status Normalizer::CheckSize(size_t n_bytes) {
  if (n_bytes <= kMaxNormalizedBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("text: over ", kMaxNormalizedBytes,
                                                 " bytes once normalized, expected at most ",
                                                 kMaxNormalizedBytes));
}

absl::StatusOr<std::string> Normalizer::Normalize(std::string_view text,
                                                  Interrupt* interrupt) const {
  if (options_.remove_extra_whitespaces) text.remove_prefix(LeadingSpaceBytes(text));
  std::string normalized;
  if (text.empty()) return normalized;
  normalized.reserve(text.size() + text.size() / 2 + kSpaceSymbol.size());
  if (options_.add_dummy_prefix) normalized.append(kSpaceSymbol);

  bool after_space = options_.remove_extra_whitespaces;
  while (!text.empty()) {
    LK_RETURN_IF_ERROR(Count(interrupt));
    const Unit unit = NormalizePrefix(text);
    text.remove_prefix(unit.n_bytes);
    std::string_view rest = unit.replacement;
    while (after_space && !rest.empty() && rest[0] == ' ') rest.remove_prefix(1);
    if (rest.empty()) continue;
    for (const char c : rest) {
      if (c == ' ') {
        normalized.append(kSpaceSymbol);
      } else {
        normalized.push_back(c);
      }
    }
    after_space = options_.remove_extra_whitespaces && rest.back() == ' ';
    LK_RETURN_IF_ERROR(CheckSize(normalized.size()));
  }
  if (options_.remove_extra_whitespaces) {
    while (normalized.ends_with(kSpaceSymbol)) {
      normalized.resize(normalized.size() - kSpaceSymbol.size());
    }
  }
  return normalized;
}

}  // namespace lowkey
