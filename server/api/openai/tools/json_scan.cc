#include "server/api/openai/tools/json_scan.h"

#include <string_view>

#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Scan JsonStringScanner::Add(char c, std::string& decoded) {
  if (state_ == State::kHex) return AddHex(c, decoded);
  if (state_ == State::kEscape) return AddEscape(c, decoded);
  if (c == '\\') {
    state_ = State::kEscape;
    return Scan::kMore;
  }
  if (high_surrogate_ != 0 || static_cast<unsigned char>(c) < 0x20) return Scan::kError;
  if (c == '"') return Scan::kDone;
  decoded.push_back(c);
  return Scan::kMore;
}

Scan JsonStringScanner::AddEscape(char c, std::string& decoded) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (c == 'u') {
    state_ = State::kHex;
    n_digits_ = 0;
    unit_ = 0;
    return Scan::kMore;
  }
  const size_t at = kEscapes.find(c);
  if (at == std::string_view::npos || high_surrogate_ != 0) return Scan::kError;
  state_ = State::kText;
  decoded.push_back(kMeanings[at]);
  return Scan::kMore;
}

Scan JsonStringScanner::AddHex(char c, std::string& decoded) {
  const char lower = static_cast<char>(c | 0x20);
  const bool is_letter = lower >= 'a' && lower <= 'f';
  if (!IsDigit(c) && !is_letter) return Scan::kError;
  unit_ = unit_ << 4 | static_cast<uint32_t>(is_letter ? lower - 'a' + 10 : c - '0');
  if (++n_digits_ < 4) return Scan::kMore;
  state_ = State::kText;
  const bool is_high = unit_ >= 0xD800 && unit_ < 0xDC00;
  const bool is_low = unit_ >= 0xDC00 && unit_ < 0xE000;
  if (is_low != (high_surrogate_ != 0)) return Scan::kError;
  if (is_high) {
    high_surrogate_ = unit_;
    return Scan::kMore;
  }
  const uint32_t code =
      is_low ? 0x10000 + ((high_surrogate_ - 0xD800) << 10) + (unit_ - 0xDC00) : unit_;
  high_surrogate_ = 0;
  AppendCodePoint(code, decoded);
  return Scan::kMore;
}

Scan JsonValueScanner::Add(char c) {
  switch (state_) {
    case State::kString:
      return AddToString(c);
    case State::kLiteral:
      return AddToLiteral(c);
    case State::kMinus:
    case State::kZero:
    case State::kDigits:
    case State::kPoint:
    case State::kFraction:
    case State::kExponent:
    case State::kSign:
    case State::kExponentDigits:
      return AddToNumber(c);
    default:
      break;
  }
  if (IsJsonSpace(c)) return Scan::kMore;
  switch (state_) {
    case State::kFirstElement:
      return c == ']' ? Close(c) : Begin(c);
    case State::kFirstKey:
      if (c == '}') return Close(c);
      [[fallthrough]];
    case State::kKey:
      if (c != '"') return Scan::kError;
      is_key_ = true;
      string_ = JsonStringScanner();
      state_ = State::kString;
      return Scan::kMore;
    case State::kColon:
      if (c != ':') return Scan::kError;
      state_ = State::kValue;
      return Scan::kMore;
    case State::kAfterValue:
      return AddAfterValue(c);
    default:
      return Begin(c);
  }
}

Scan JsonValueScanner::Begin(char c) {
  switch (c) {
    case '{':
    case '[':
      return Open(c);
    case '"':
      is_key_ = false;
      string_ = JsonStringScanner();
      state_ = State::kString;
      return Scan::kMore;
    case 't':
    case 'f':
    case 'n':
      literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
      state_ = State::kLiteral;
      return Scan::kMore;
    case '-':
      state_ = State::kMinus;
      return Scan::kMore;
    default:
      if (!IsDigit(c)) return Scan::kError;
      state_ = c == '0' ? State::kZero : State::kDigits;
      return Scan::kMore;
  }
}

Scan JsonValueScanner::Open(char c) {
  if (depth_ == kMaxDepth) return Scan::kError;
  ++depth_;
  is_object_ = is_object_ << 1 | (c == '{' ? 1 : 0);
  state_ = c == '{' ? State::kFirstKey : State::kFirstElement;
  return Scan::kMore;
}

Scan JsonValueScanner::Close(char c) {
  if (depth_ == 0 || (is_object_ & 1) != (c == '}' ? 1 : 0)) return Scan::kError;
  --depth_;
  is_object_ >>= 1;
  return EndValue();
}

Scan JsonValueScanner::EndValue() {
  state_ = State::kAfterValue;
  return depth_ == 0 ? Scan::kDone : Scan::kMore;
}

Scan JsonValueScanner::AddToString(char c) {
  scratch_.clear();
  const Scan scan = string_.Add(c, scratch_);
  if (scan != Scan::kDone) return scan;
  if (!is_key_) return EndValue();
  state_ = State::kColon;
  return Scan::kMore;
}

Scan JsonValueScanner::AddToLiteral(char c) {
  if (c != *literal_) return Scan::kError;
  return *++literal_ == '\0' ? EndValue() : Scan::kMore;
}

Scan JsonValueScanner::AddToNumber(char c) {
  const auto go = [this](State state) {
    state_ = state;
    return Scan::kMore;
  };
  const bool is_exponent = c == 'e' || c == 'E';
  switch (state_) {
    case State::kMinus:
      return !IsDigit(c) ? Scan::kError : go(c == '0' ? State::kZero : State::kDigits);
    case State::kPoint:
      return !IsDigit(c) ? Scan::kError : go(State::kFraction);
    case State::kExponent:
      if (c == '+' || c == '-') return go(State::kSign);
      [[fallthrough]];
    case State::kSign:
      return !IsDigit(c) ? Scan::kError : go(State::kExponentDigits);
    case State::kZero:
    case State::kDigits:
      if (c == '.') return go(State::kPoint);
      [[fallthrough]];
    case State::kFraction:
      if (is_exponent) return go(State::kExponent);
      [[fallthrough]];
    default:
      if (IsDigit(c) && state_ != State::kZero) return Scan::kMore;
  }
  if (IsDigit(c)) return Scan::kError;  // 01
  if (EndValue() == Scan::kDone) return Scan::kPast;
  return Add(c);
}

Scan JsonValueScanner::AddAfterValue(char c) {
  if (depth_ == 0) return Scan::kPast;
  if (c != ',') return c == '}' || c == ']' ? Close(c) : Scan::kError;
  state_ = (is_object_ & 1) != 0 ? State::kKey : State::kValue;
  return Scan::kMore;
}

}  // namespace lowkey
