#include "tokenizer/bpe/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// \w of Rust's regular expressions.
bool IsWord(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Joiners, and letters in circles and squares.
      return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
             (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
             (code >= 0x1F170 && code <= 0x1F189);
  }
}

bool IsSingleWord(std::string_view text, size_t begin, size_t end) {
  return (begin == 0 || !IsWord(CodePointAt(LastCharacter(text.substr(0, begin)), 0))) &&
         (end == text.size() || !IsWord(CodePointAt(text, end)));
}

size_t SkipSpaceLeft(std::string_view text, size_t begin, size_t least) {
  while (begin > least) {
    const std::string_view last = LastCharacter(text.substr(0, begin));
    if (!IsWhiteSpace(CodePointAt(last, 0))) break;
    begin -= last.size();
  }
  return std::max(begin, least);
}

size_t SkipSpaceRight(std::string_view text, size_t end) {
  while (end < text.size() && IsWhiteSpace(CodePointAt(text, end))) {
    end += CharacterBytes(text, end);
  }
  return end;
}

absl::Status CheckContent(std::string_view content) {
  if (content.empty() || content.size() > AddedTokens::kMaxContentBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "content: ", content.size(), " bytes, expected 1 to ", AddedTokens::kMaxContentBytes));
  }
  if (!FindInvalidUtf8(content).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError("content: not UTF-8, expected valid UTF-8");
}

// Returns the text to look for.
absl::StatusOr<std::string> Searched(const AddedToken& token, const Rewriter& rewriter,
                                     PatternBudget& budget) {
  LK_RETURN_IF_ERROR(CheckContent(token.content));
  if (!token.is_normalized) return token.content;
  if (token.is_special && rewriter.HasUnicodeForm()) {
    return absl::UnimplementedError(
        "a special token that is normalized to a Unicode form is not supported");
  }
  Section section = {.text = token.content, .literal = {}};
  LK_RETURN_IF_ERROR(rewriter.Apply(section, budget));
  LK_RETURN_IF_ERROR(CheckContent(section.text));
  return section.text;
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Create(std::vector<AddedToken> tokens,
                                                const Rewriter& rewriter) {
  std::vector<PieceTrie::Entry> raw, rewritten;
  absl::flat_hash_set<std::pair<bool, std::string_view>> seen;
  size_t n_content_bytes = 0, n_bytes = 0;
  for (const AddedToken& token : tokens) n_content_bytes += token.content.size();
  PatternBudget budget(std::min(n_content_bytes, kMaxTotalBytes));
  for (size_t i = 0; i < tokens.size(); ++i) {
    AddedToken& token = tokens[i];
    const std::string where = absl::StrCat("added_tokens[", i, "]");
    LK_ASSIGN_OR_RETURN(token.searched, Prefixed(where, Searched(token, rewriter, budget)));
    n_bytes += token.searched.size();
    if (n_bytes > kMaxTotalBytes) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": more than ", kMaxTotalBytes,
                                                     " bytes together, expected at most ",
                                                     kMaxTotalBytes));
    }
    if (!seen.emplace(token.is_normalized, token.searched).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": \"",
                                                     absl::CHexEscape(token.searched),
                                                     "\" for the second time, expected once"));
    }
    (token.is_normalized ? rewritten : raw).push_back({token.searched, static_cast<int32_t>(i)});
  }
  PieceTrie raw_trie(std::move(raw)), rewritten_trie(std::move(rewritten));
  return AddedTokens(std::move(tokens), std::move(raw_trie), std::move(rewritten_trie));
}

absl::Status AddedTokens::Split(const Section& section, Options options, VisitText visit_text,
                                VisitToken visit_token) const {
  const PieceTrie& trie = options.in_rewritten_text ? rewritten_ : raw_;
  const std::string& text = section.text;
  const auto visit = [&](size_t begin, size_t end) {
    if (begin >= end) return absl::OkStatus();
    Section part = {.text = text.substr(begin, end - begin),
                    .literal = section.literal.empty() ? std::string()
                                                       : section.literal.substr(begin, end - begin),
                    .begins_text = section.begins_text && begin == 0};
    return visit_text(std::move(part));
  };
  size_t done = 0;       // the text before has been visited
  size_t space_end = 0;  // of the last run of white space: its other tokens take the same
  for (size_t at = 0; at < text.size();) {
    const auto match = trie.LongestPrefix(std::string_view(text).substr(at));
    if (!match.has_value()) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match->id)];
    size_t begin = at;
    size_t end = at + match->n_bytes;
    const bool is_literal = section.HasLiteral(begin, end);
    if (token.is_special && (!options.parse_special || is_literal)) {
      ++at;
      continue;
    }
    at = end;
    if (token.is_single_word && !IsSingleWord(text, begin, end)) continue;
    if (token.takes_left_space) begin = SkipSpaceLeft(text, begin, done);
    if (token.takes_right_space) {
      end = space_end = end < space_end ? space_end : SkipSpaceRight(text, end);
    }
    LK_RETURN_IF_ERROR(visit(done, begin));
    visit_token(token.id);
    done = end;
  }
  return visit(done, text.size());
}

}  // namespace lowkey
