// Llama's calls: the whole answer is {"name": ..., "parameters": {...}}, with a semicolon between
// two of them, or name.call(key="value") behind a tag.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/openai/tools/format_parser.h"

namespace lowkey {
namespace {

constexpr std::string_view kTag = "<|python_tag|>";

bool IsPythonNameByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         c == '.';
}

// Parses `name.call(key="value", ...)`, a whole one.
class PythonCall {
 public:
  explicit PythonCall(std::string_view text) : rest_(text) {}

  // False: it is none.
  bool Parse() {
    const size_t open = rest_.find('(');
    constexpr std::string_view kCall = ".call";
    const std::string_view callee = rest_.substr(0, open);
    if (open == std::string_view::npos || !callee.ends_with(kCall)) return false;
    name_ = callee.substr(0, callee.size() - kCall.size());
    rest_.remove_prefix(open + 1);
    if (name_.empty() || name_.size() > kMaxToolNameBytes) return false;
    SkipSpace();
    while (!Takes(')')) {
      if (!ParseArgument()) return false;
      SkipSpace();
      if (!Takes(',') && !rest_.starts_with(')')) return false;
      SkipSpace();
    }
    return rest_.empty();
  }

  const std::string& name() const { return name_; }
  std::string arguments() const {
    return arguments_.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }

 private:
  void SkipSpace() {
    while (!rest_.empty() && IsJsonSpace(rest_.front())) rest_.remove_prefix(1);
  }
  bool Takes(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  bool ParseArgument() {
    size_t n = 0;
    while (n < rest_.size() && IsPythonNameByte(rest_[n]) && rest_[n] != '.') ++n;
    const std::string key(rest_.substr(0, n));
    rest_.remove_prefix(n);
    SkipSpace();
    if (key.empty() || !Takes('=')) return false;
    SkipSpace();
    nlohmann::ordered_json value;
    if (rest_.empty() || !ParseValue(value)) return false;
    return arguments_.emplace(key, std::move(value)).second;
  }

  bool ParseValue(nlohmann::ordered_json& value) {
    if (rest_.front() == '"' || rest_.front() == '\'') return ParseText(value);
    const size_t n = std::min(rest_.find_first_of(",) \t\r\n"), rest_.size());
    const std::string_view word = rest_.substr(0, n);
    rest_.remove_prefix(n);
    if (word == "True" || word == "true") {
      value = true;
    } else if (word == "False" || word == "false") {
      value = false;
    } else if (word != "None" && word != "null") {
      value = nlohmann::ordered_json::parse(word, nullptr, /*allow_exceptions=*/false);
      return value.is_number();
    }
    return true;
  }

  bool ParseText(nlohmann::ordered_json& value) {
    constexpr std::pair<char, char> kEscapes[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'}};
    const char quote = rest_.front();
    std::string text;
    size_t i = 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      if (rest_[i] != '\\' || i + 1 == rest_.size()) {
        text.push_back(rest_[i]);
        continue;
      }
      const char escaped = rest_[++i];
      char meaning = escaped;
      for (const auto& [letter, control] : kEscapes) {
        if (letter == escaped) meaning = control;
      }
      const bool is_known =
          meaning != escaped || escaped == '\\' || escaped == '"' || escaped == '\'';
      if (!is_known) text.push_back('\\');
      text.push_back(meaning);
    }
    if (i == rest_.size()) return false;
    rest_.remove_prefix(i + 1);
    value = std::move(text);
    return true;
  }

  std::string_view rest_;
  std::string name_;
  nlohmann::ordered_json arguments_ = nlohmann::ordered_json::object();
};

class Llama3Parser final : public FormatParser {
 private:
  enum class State { kStart, kText, kAfterTag, kCall, kPython, kAfterCall, kBetweenCalls };

  void Take(char c) override {
    switch (state_) {
      case State::kStart:
        if (c == '{') return BeginJson(c, {.needs_arguments = true, .only_known_members = true});
        if (!IsJsonSpace(c)) return ToText(c);
        if (!Hold(c)) state_ = State::kText;
        return;
      case State::kText:
        if (TakeText(c, kTag)) {
          n_tag_bytes_ = held().size();
          state_ = State::kAfterTag;
        }
        return;
      case State::kAfterTag:
        return TakeAfterTag(c);
      case State::kCall:
        return TakeJson(c);
      case State::kPython:
        return TakePython(c);
      case State::kAfterCall:
        return TakeAfterCall(c);
      case State::kBetweenCalls:
        if (c == '{') return BeginJson(c, {.needs_arguments = true});
        if (!IsJsonSpace(c)) return AbandonBefore(c);
        if (!Hold(c)) state_ = State::kText;
        return;
    }
  }

  // The byte begins text, or a tag.
  void ToText(char c) {
    state_ = State::kText;
    Take(c);
  }

  void BeginJson(char c, CallRules rules) {
    scanner_.emplace(rules);
    state_ = State::kCall;
    TakeJson(c);
  }

  void TakeJson(char c) { TakeCall(c, *scanner_, state_, State::kAfterCall, State::kText); }

  void TakeAfterTag(char c) {
    if (c == '{') return BeginJson(c, {.needs_arguments = true});
    if (IsJsonSpace(c)) {
      n_tag_bytes_ = held().size() + 1;
      if (!Hold(c)) state_ = State::kText;
      return;
    }
    quote_ = 0;
    is_escaped_ = has_opened_ = false;
    state_ = State::kPython;
    TakePython(c);
  }

  // Holds a call until its closing parenthesis.
  void TakePython(char c) {
    if (!has_opened_ && !IsPythonNameByte(c) && c != '(') return AbandonBefore(c);
    if (!Hold(c)) {
      state_ = State::kText;
      return;
    }
    if (!has_opened_) {
      has_opened_ = c == '(';
      if (has_opened_ && !std::string_view(held()).ends_with(".call(")) Abandon();
      return;
    }
    if (quote_ != 0) {
      const bool closes = c == quote_ && !is_escaped_;
      is_escaped_ = c == '\\' && !is_escaped_;
      if (closes) quote_ = 0;
    } else if (c == '"' || c == '\'') {
      quote_ = c;
    } else if (c == ')') {
      EndPython();
    }
  }

  void EndPython() {
    PythonCall call(std::string_view(held()).substr(n_tag_bytes_));
    if (!call.Parse()) return Abandon();
    DropHeld();
    BeginCall(call.name(), MakeId());
    AddArguments(call.arguments());
    EndCall();
    state_ = State::kAfterCall;
  }

  void Abandon() {
    ReleaseHeld();
    state_ = State::kText;
  }
  void AbandonBefore(char c) {
    ReleaseHeld();
    ToText(c);
  }

  void TakeAfterCall(char c) {
    if (c == ';' && Hold(c)) {
      state_ = State::kBetweenCalls;
      return;
    }
    if (!IsJsonSpace(c)) return ToText(c);
    if (!Hold(c)) state_ = State::kText;
  }

  State state_ = State::kStart;
  std::optional<CallScanner> scanner_;
  size_t n_tag_bytes_ = 0;  // held up to the call behind the tag
  char quote_ = 0;          // of the text that is open in a call; 0: none
  bool is_escaped_ = false, has_opened_ = false;
};

}  // namespace

std::unique_ptr<ToolParser> MakeLlama3Parser() { return std::make_unique<Llama3Parser>(); }

}  // namespace lowkey
