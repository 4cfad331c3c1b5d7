#include "tokenizer/chat/values/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey::jinja {
namespace {

ByteRange Strip(std::string_view text, StripSide side,
                absl::FunctionRef<bool(std::string_view)> is_stripped) {
  ByteRange kept{0, text.size()};
  while (side != StripSide::kRight && kept.begin < kept.end) {
    const size_t n_bytes = CharacterBytes(text, kept.begin);
    if (!is_stripped(text.substr(kept.begin, n_bytes))) break;
    kept.begin += n_bytes;
  }
  while (side != StripSide::kLeft && kept.begin < kept.end) {
    size_t last = kept.end - 1;
    while (last > kept.begin && IsContinuation(text[last])) --last;
    if (!is_stripped(text.substr(last, kept.end - last))) break;
    kept.end = last;
  }
  return kept;
}

char32_t ToUpper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t ToLower(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsLineEnd(char32_t code_point) {
  return (code_point >= 0x0A && code_point <= 0x0D) || (code_point >= 0x1C && code_point <= 0x1E) ||
         code_point == 0x85 || code_point == 0x2028 || code_point == 0x2029;
}

}  // namespace

Text Text::FromUser(std::string bytes) {
  Text text(std::move(bytes));
  if (text.size() > 0) text.user_ranges_.push_back({0, text.size()});
  return text;
}

void Text::AppendPart(const Text& text, size_t begin, size_t end) {
  const size_t shift = bytes_.size();
  bytes_.append(text.bytes_, begin, end - begin);
  auto range =
      std::partition_point(text.user_ranges_.begin(), text.user_ranges_.end(),
                           [begin](const ByteRange& candidate) { return candidate.end <= begin; });
  for (; range != text.user_ranges_.end() && range->begin < end; ++range) {
    const ByteRange moved{std::max(range->begin, begin) - begin + shift,
                          std::min(range->end, end) - begin + shift};
    if (!user_ranges_.empty() && user_ranges_.back().end == moved.begin) {
      user_ranges_.back().end = moved.end;
    } else if (moved.begin < moved.end) {
      user_ranges_.push_back(moved);
    }
  }
}

Text Text::Part(size_t begin, size_t end) const {
  Text part;
  part.AppendPart(*this, begin, end);
  return part;
}

bool Text::IsUsers(size_t at) const {
  const auto range =
      std::partition_point(user_ranges_.begin(), user_ranges_.end(),
                           [at](const ByteRange& candidate) { return candidate.end <= at; });
  return range != user_ranges_.end() && range->begin <= at;
}

bool IsSpace(char32_t code_point) {
  return IsWhiteSpace(code_point) || (code_point >= 0x1C && code_point <= 0x1F);
}

ByteRange StripSpace(std::string_view text, StripSide side) {
  return Strip(text, side,
               [](std::string_view character) { return IsSpace(CodePointAt(character, 0)); });
}

ByteRange StripSet(std::string_view text, std::string_view set, StripSide side) {
  // A whole character of valid UTF-8 is found only where a character begins.
  return Strip(text, side, [set](std::string_view character) {
    return set.find(character) != std::string_view::npos;
  });
}

size_t Find(std::string_view text, std::string_view needle, size_t from) {
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos
                       : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

absl::Status ForEachSeparator(std::string_view text, std::string_view separator, VisitRange visit) {
  if (separator.empty()) {
    for (size_t at = 0; at < text.size(); at += CharacterBytes(text, at)) {
      LK_RETURN_IF_ERROR(visit({at, at}));
    }
    return visit({text.size(), text.size()});
  }
  for (size_t at = 0; (at = Find(text, separator, at)) != std::string_view::npos;) {
    LK_RETURN_IF_ERROR(visit({at, at + separator.size()}));
    at += separator.size();
  }
  return absl::OkStatus();
}

absl::Status ForEachSpace(std::string_view text, VisitRange visit) {
  for (size_t at = 0; at < text.size();) {
    ByteRange run{at, at};
    while (run.end < text.size() && IsSpace(CodePointAt(text, run.end))) {
      run.end += CharacterBytes(text, run.end);
    }
    if (run.begin < run.end) LK_RETURN_IF_ERROR(visit(run));
    at = run.end < text.size() ? run.end + CharacterBytes(text, run.end) : run.end;
  }
  return absl::OkStatus();
}

absl::Status ForEachLine(std::string_view text, VisitRange visit) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = CharacterBytes(text, at);
    if (IsLineEnd(CodePointAt(text, at))) {
      LK_RETURN_IF_ERROR(visit({begin, at}));
      begin = at + n_bytes;
      if (text[at] == '\r' && begin < text.size() && text[begin] == '\n') ++begin;
      at = begin;
    } else {
      at += n_bytes;
    }
  }
  return begin < text.size() ? visit({begin, text.size()}) : absl::OkStatus();
}

Text WithCase(const Text& text, Case wanted) {
  Text changed;
  bool is_start = true;
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = CharacterBytes(text.bytes(), at);
    const char32_t character = CodePointAt(text.bytes(), at);
    const bool is_upper = wanted == Case::kUpper || (wanted != Case::kLower && is_start);
    std::string bytes;
    AppendCodePoint(is_upper ? ToUpper(character) : ToLower(character), bytes);
    const bool is_users = text.IsUsers(at);
    changed.Append(is_users ? Text::FromUser(std::move(bytes)) : Text(std::move(bytes)));
    if (wanted == Case::kCapitalized) is_start = false;
    if (wanted == Case::kTitle) is_start = !IsLetter(character);
    if (wanted == Case::kTitleWords) {
      is_start = IsSpace(character) ||
                 std::u32string_view(U"-({[<").find(character) != std::u32string_view::npos;
    }
    at += n_bytes;
  }
  return changed;
}

}  // namespace lowkey::jinja
