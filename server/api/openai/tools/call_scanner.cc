#include "server/api/openai/tools/call_scanner.h"

#include <string_view>

namespace lowkey {
namespace {

constexpr size_t kMaxKeyBytes = 256;

bool IsArguments(std::string_view key) { return key == "arguments" || key == "parameters"; }

}  // namespace

bool CallScanner::IsKnownKey() const {
  return key_ == "name" || IsArguments(key_) || key_ == "type" || key_ == "id";
}

// The arguments that have come so far are the call's first ones.
void CallScanner::BeginIfReady(std::string& arguments) {
  if (has_begun_ || !has_name_ || !has_arguments_) return;
  has_begun_ = true;
  arguments.append(waiting_);
  waiting_.clear();
}

Scan CallScanner::Add(char c, std::string& arguments) {
  switch (state_) {
    case State::kInKey:
      return AddToKey(c);
    case State::kName:
      return AddToName(c, arguments);
    case State::kObject:
    case State::kText:
      return AddToArguments(c, arguments);
    case State::kOther:
      return AddToOther(c, arguments);
    default:
      break;
  }
  if (IsJsonSpace(c)) return Scan::kMore;
  switch (state_) {
    case State::kOpen:
      if (c != '{') return Scan::kError;
      state_ = State::kFirstKey;
      return Scan::kMore;
    case State::kFirstKey:
    case State::kKey:
      if (c != '"') return Scan::kError;
      key_.clear();
      string_ = JsonStringScanner();
      state_ = State::kInKey;
      return Scan::kMore;
    case State::kColon:
      if (c != ':') return Scan::kError;
      state_ = State::kValue;
      return Scan::kMore;
    case State::kValue:
      return BeginValue(c, arguments);
    default:
      return AddAfterValue(c, arguments);
  }
}

Scan CallScanner::AddToKey(char c) {
  const Scan scan = string_.Add(c, key_);
  if (scan == Scan::kMore) return key_.size() <= kMaxKeyBytes ? scan : Scan::kError;
  if (scan != Scan::kDone) return scan;
  const bool is_second = (key_ == "name" && has_name_) || (IsArguments(key_) && has_arguments_);
  if (is_second || (rules_.only_known_members && !IsKnownKey())) return Scan::kError;
  state_ = State::kColon;
  return Scan::kMore;
}

Scan CallScanner::BeginValue(char c, std::string& arguments) {
  if (key_ == "name") {
    if (c != '"') return Scan::kError;
    string_ = JsonStringScanner();
    state_ = State::kName;
    return Scan::kMore;
  }
  value_ = JsonValueScanner();
  if (!IsArguments(key_) || c == 'n') {
    state_ = State::kOther;
    return AddToOther(c, arguments);
  }
  if (c != '{' && c != '"') return Scan::kError;
  has_arguments_ = true;
  BeginIfReady(arguments);
  string_ = JsonStringScanner();
  state_ = c == '{' ? State::kObject : State::kText;
  return c == '{' ? AddToArguments(c, arguments) : Scan::kMore;
}

Scan CallScanner::AddToName(char c, std::string& arguments) {
  const Scan scan = string_.Add(c, name_);
  if (scan == Scan::kMore) return name_.size() <= kMaxToolNameBytes ? scan : Scan::kError;
  if (scan != Scan::kDone) return scan;
  if (name_.empty()) return Scan::kError;
  has_name_ = true;
  BeginIfReady(arguments);
  state_ = State::kAfterValue;
  return Scan::kMore;
}

Scan CallScanner::AddToArguments(char c, std::string& arguments) {
  std::string& to = has_begun_ ? arguments : waiting_;
  const bool is_object = state_ == State::kObject;
  const Scan scan = is_object ? value_.Add(c) : string_.Add(c, to);
  if (scan == Scan::kError) return scan;
  if (is_object) to.push_back(c);
  if (scan == Scan::kDone) state_ = State::kAfterValue;
  return Scan::kMore;
}

Scan CallScanner::AddToOther(char c, std::string& arguments) {
  const Scan scan = value_.Add(c);
  if (scan == Scan::kError) return scan;
  if (scan != Scan::kMore) state_ = State::kAfterValue;
  return scan == Scan::kPast ? Add(c, arguments) : Scan::kMore;
}

Scan CallScanner::AddAfterValue(char c, std::string& arguments) {
  if (c == '}') return Close(arguments);
  if (c != ',') return Scan::kError;
  state_ = State::kKey;
  return Scan::kMore;
}

Scan CallScanner::Close(std::string& arguments) {
  if (!has_name_ || (!has_arguments_ && rules_.needs_arguments)) return Scan::kError;
  if (!has_arguments_) {
    has_arguments_ = true;
    waiting_ = "{}";
    BeginIfReady(arguments);
  }
  return Scan::kDone;
}

}  // namespace lowkey
