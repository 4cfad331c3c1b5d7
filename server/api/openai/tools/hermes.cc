// Qwen's and Hermes' calls: <tool_call>, a JSON object, </tool_call>.
#include "server/api/openai/tools/format_parser.h"

namespace lowkey {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

class HermesParser final : public FormatParser {
 private:
  enum class State { kText, kCall, kAfterCall };

  void Take(char c) override {
    switch (state_) {
      case State::kText:
        if (!TakeText(c, kOpen)) return;
        scanner_.emplace();
        state_ = State::kCall;
        return;
      case State::kCall:
        return TakeCall(c, *scanner_, state_, State::kAfterCall, State::kText);
      case State::kAfterCall:
        return TakeAfterCall(c);
    }
  }

  // The closing tag may be missing: the next call, or text, may follow at once.
  void TakeAfterCall(char c) {
    if (held().empty() && IsJsonSpace(c)) return;
    switch (MatchMarker(c, kClose)) {
      case Match::kMore:
        return;
      case Match::kWhole:
        DropHeld();
        state_ = State::kText;
        return;
      case Match::kNone:
        break;
    }
    // What is held may begin the opening tag as well.
    const std::string begun = held();
    DropHeld();
    state_ = State::kText;
    for (const char held : begun) Take(held);
    Take(c);
  }

  State state_ = State::kText;
  std::optional<CallScanner> scanner_;
};

}  // namespace

std::unique_ptr<ToolParser> MakeHermesParser() { return std::make_unique<HermesParser>(); }

}  // namespace lowkey
