#include "tokenizer/bpe/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/regex_syntax.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

constexpr uint32_t kMaxHeapKib = 64 << 10;  // for one match

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* pointer) const {
    kFree(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;

// Counts the bytes from callout to callout, over which a repeat passes.
struct Watch {
  PatternBudget& budget;
  size_t& last;
  absl::Status status = absl::OkStatus();  // the interrupt's

  static int Count(pcre2_callout_block* block, void* data) {
    Watch& watch = *static_cast<Watch*>(data);
    const size_t at = block->current_position;
    const size_t n_steps = 1 + (at > watch.last ? at - watch.last : watch.last - at);
    watch.last = at;
    if (n_steps > watch.budget.steps_left) return PCRE2_ERROR_CALLOUT;
    watch.budget.steps_left -= n_steps;
    watch.status = lowkey::Count(watch.budget.interrupt, n_steps);
    return watch.status.ok() ? 0 : PCRE2_ERROR_CALLOUT;
  }
};

std::string ErrorText(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

absl::Status CheckText(std::string_view text, size_t max_bytes) {
  if (text.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(text.size(), " bytes, expected at most ", max_bytes));
  }
  if (FindInvalidUtf8(text).has_value()) {
    return absl::InvalidArgumentError("not UTF-8, expected valid UTF-8");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PatternBudget::TakeBytes(size_t n_bytes) {
  if (n_bytes > bytes_left) {
    return absl::InvalidArgumentError(
        "text: its parts grow too much while they are normalized and cut into words");
  }
  bytes_left -= n_bytes;
  return absl::OkStatus();
}

absl::StatusOr<Pattern> Pattern::FromString(std::string_view text) {
  LK_RETURN_IF_ERROR(CheckText(text, kMaxStringBytes));
  if (text.empty()) return absl::InvalidArgumentError("empty, expected a string to search for");
  Pattern pattern;
  pattern.text_ = std::string(text);
  return pattern;
}

absl::StatusOr<Pattern> Pattern::FromRegex(std::string_view regex) {
  LK_RETURN_IF_ERROR(CheckText(regex, kMaxBytes));
  LK_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(regex));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  LK_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get()));
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(std::string(regex)), "\": ", ErrorText(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::UnimplementedError(absl::StrCat("\"", absl::CHexEscape(std::string(regex)),
                                                 "\" can match nothing, which is not supported"));
  }
  // A pattern that cannot be compiled to machine code is interpreted.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  Pattern pattern;
  pattern.text_ = std::string(regex);
  pattern.regex_ = std::shared_ptr<pcre2_code>(std::move(code));
  return pattern;
}

PatternSearch::PatternSearch(const Pattern& pattern, PatternBudget& budget)
    : pattern_(pattern), budget_(budget) {
  if (pattern.regex_ == nullptr) return;
  match_.reset(pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  context_.reset(pcre2_match_context_create(nullptr), pcre2_match_context_free);
  LK_CHECK(match_ != nullptr && context_ != nullptr);
}

absl::Status PatternSearch::ForEachMatch(std::string_view text, Visit visit) {
  if (pattern_.regex_ != nullptr) return ForEachRegexMatch(text, visit);
  for (size_t begin = text.find(pattern_.text_); begin != std::string_view::npos;) {
    const size_t end = begin + pattern_.text_.size();
    visit(begin, end);
    begin = text.find(pattern_.text_, end);
  }
  return absl::OkStatus();
}

absl::Status PatternSearch::ForEachRegexMatch(std::string_view text, Visit visit) {
  const auto* const code = static_cast<const pcre2_code*>(pattern_.regex_.get());
  auto* const match = static_cast<pcre2_match_data*>(match_.get());
  auto* const context = static_cast<pcre2_match_context*>(context_.get());
  size_t last_callout = 0;
  Watch watch{budget_, last_callout};
  pcre2_set_callout(context, Watch::Count, &watch);
  pcre2_set_heap_limit(context, kMaxHeapKib);
  pcre2_set_match_limit(context, static_cast<uint32_t>(std::min<size_t>(
                                     budget_.steps_left, std::numeric_limits<uint32_t>::max())));
  const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t begin = 0;
  while (begin < text.size()) {
    // NO_UTF_CHECK saves every call from reading the whole text.
    int rc = pcre2_match(code, subject, text.size(), begin, PCRE2_NO_UTF_CHECK, match, context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code, subject, text.size(), begin, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match,
                       context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (!watch.status.ok()) return watch.status;
    if (rc < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("text: the tokenizer's pattern \"", absl::CHexEscape(pattern_.text_),
                       "\" takes too many steps on ", text.size(), " bytes: ", ErrorText(rc)));
    }
    const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match);
    visit(found[0], found[1]);
    LK_RETURN_IF_ERROR(Count(budget_.interrupt));
    begin = found[1];
  }
  return absl::OkStatus();
}

}  // namespace lowkey
