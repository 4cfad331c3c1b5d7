// Mistral's calls: [TOOL_CALLS] and a JSON array of objects, or name[ARGS]{...}, with a
// [CALL_ID] between the two in some versions.
#include <algorithm>

#include "server/api/openai/tools/format_parser.h"

namespace lowkey {
namespace {

constexpr std::string_view kCalls = "[TOOL_CALLS]", kArgs = "[ARGS]", kCallId = "[CALL_ID]";
constexpr std::string_view kIdLetters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr size_t kIdBytes = 9;

bool IsCallNameByte(char c) {
  return kIdLetters.find(c) != std::string_view::npos || c == '_' || c == '-' || c == '.';
}

class MistralParser final : public FormatParser {
 private:
  enum class State {
    kText,
    kAfterMarker,
    kElement,  // of the array
    kAfterElement,
    kName,    // up to a marker
    kMarker,  // [ARGS] or [CALL_ID]
    kId,
    kArguments,  // of a named call
    kAfterNamed
  };

  std::string MakeId() override { return RandomText(kIdLetters, kIdBytes); }

  void Take(char c) override {
    switch (state_) {
      case State::kText:
        if (TakeText(c, kCalls)) state_ = State::kAfterMarker;
        return;
      case State::kAfterMarker:
        if (c == '[') return Await(c, State::kElement);
        if (IsCallNameByte(c)) return BeginName(c);
        return AwaitSpace(c);
      case State::kElement:
        return TakeElement(c);
      case State::kAfterElement:
        if (c == ',') return Await(c, State::kElement);
        if (c != ']') return AwaitSpace(c);
        DropHeld();
        state_ = State::kText;
        return;
      case State::kName:
        return TakeName(c);
      case State::kMarker:
        return TakeMarker(c);
      case State::kId:
        return TakeId(c);
      case State::kArguments:
        return TakeArguments(c);
      case State::kAfterNamed:
        if (IsCallNameByte(c)) return BeginName(c);
        if (!IsJsonSpace(c)) return ToText(c);
        return AwaitSpace(c);
    }
  }

  void ToText(char c) {
    state_ = State::kText;
    Take(c);
  }
  // What is held is no call, and the byte comes after it.
  void Abandon(char c) {
    ReleaseHeld();
    ToText(c);
  }
  // Holds the byte, and goes on to the state that follows it.
  void Await(char c, State next) {
    state_ = Hold(c) ? next : State::kText;
    if (state_ == State::kElement) scanner_.emplace();
  }
  void AwaitSpace(char c) {
    if (!IsJsonSpace(c)) return Abandon(c);
    if (!Hold(c)) state_ = State::kText;
  }

  void TakeElement(char c) { TakeCall(c, *scanner_, state_, State::kAfterElement, State::kText); }

  void BeginName(char c) {
    name_.clear();
    id_.clear();
    state_ = State::kName;
    TakeName(c);
  }

  void TakeName(char c) {
    const bool is_name = IsCallNameByte(c) && name_.size() < kMaxToolNameBytes;
    if (!is_name && c != '[') return Abandon(c);
    if (is_name) name_.push_back(c);
    marker_.assign(is_name ? 0 : 1, '[');
    Await(c, is_name ? State::kName : State::kMarker);
  }

  // A name may also be text that the next [TOOL_CALLS] follows.
  void TakeMarker(char c) {
    marker_.push_back(c);
    for (const std::string_view marker : {kArgs, kCallId}) {
      if (marker.starts_with(marker_)) {
        const bool is_whole = marker.size() == marker_.size();
        const State next = marker == kArgs ? State::kArguments : State::kId;
        value_ = JsonValueScanner();
        has_begun_ = false;
        return Await(c, is_whole ? next : State::kMarker);
      }
    }
    marker_.pop_back();
    // The bytes of the marker may begin another one.
    const std::string begun = marker_;
    DropLast(begun.size());
    ReleaseHeld();
    state_ = State::kText;
    for (const char held : begun) Take(held);
    Take(c);
  }

  void TakeId(char c) {
    if (c == '[') {
      marker_.assign(1, '[');
      return Await(c, State::kMarker);
    }
    if (kIdLetters.find(c) == std::string_view::npos || id_.size() >= kMaxToolNameBytes) {
      return Abandon(c);
    }
    id_.push_back(c);
    Await(c, State::kId);
  }

  void TakeArguments(char c) {
    if (!has_begun_ && c != '{') return AwaitSpace(c);
    const Scan scan = value_.Add(c);
    if (scan == Scan::kError) return ToText(c);
    if (!has_begun_) {
      DropHeld();
      has_begun_ = true;
      BeginCall(name_, id_.size() == kIdBytes ? id_ : MakeId());
    }
    AddArguments({&c, 1});
    if (scan != Scan::kDone) return;
    EndCall();
    state_ = State::kAfterNamed;
  }

  State state_ = State::kText;
  std::optional<CallScanner> scanner_;
  JsonValueScanner value_;
  std::string name_, id_, marker_;
  bool has_begun_ = false;
};

}  // namespace

std::unique_ptr<ToolParser> MakeMistralParser() { return std::make_unique<MistralParser>(); }

}  // namespace lowkey
