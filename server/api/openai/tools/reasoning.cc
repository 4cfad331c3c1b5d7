// What a model writes for itself, before its answer: <think>...</think>.
#include <utility>

#include "server/api/openai/tools/format_parser.h"
#include "server/api/openai/tools/tool_format.h"

namespace lowkey {
namespace {

class ReasoningParser final : public ToolParser {
 public:
  ReasoningParser(bool begins_inside, std::unique_ptr<ToolParser> rest)
      : state_(begins_inside ? State::kBegin : State::kStart), rest_(std::move(rest)) {}

  void Add(std::string_view text, std::vector<ToolEvent>& events) override {
    while (!text.empty() && state_ != State::kRest) {
      Take(text.front(), events);
      text.remove_prefix(1);
    }
    if (!text.empty()) rest_->Add(text, events);
  }

  void End(std::vector<ToolEvent>& events) override {
    if (state_ == State::kStart) rest_->Add(held_, events);
    if (state_ == State::kInside) Release(events);
    rest_->End(events);
  }

 private:
  enum class State {
    kStart,  // white space, then perhaps <think>
    kBegin,  // white space behind it
    kInside,
    kAfter,  // white space behind </think>
    kRest
  };

  void Release(std::vector<ToolEvent>& events) {
    AppendText(ToolEvent::Kind::kReasoning, 0, held_, events);
    held_.clear();
    n_matched_ = 0;
  }

  // Holds a byte if it goes on with the marker, or is white space before it.
  bool Holds(char c, std::string_view marker) {
    const bool is_next = c == marker[n_matched_];
    if (!is_next && (n_matched_ > 0 || !IsJsonSpace(c))) return false;
    if (held_.size() == kMaxHeldBytes) return false;
    if (is_next) ++n_matched_;
    held_.push_back(c);
    return true;
  }
  bool IsWhole(std::string_view marker) {
    if (n_matched_ < marker.size()) return false;
    held_.clear();
    n_matched_ = 0;
    return true;
  }

  void Take(char c, std::vector<ToolEvent>& events) {
    switch (state_) {
      case State::kStart:
        if (Holds(c, kReasoningOpen)) {
          if (IsWhole(kReasoningOpen)) state_ = State::kBegin;
          return;
        }
        rest_->Add(std::exchange(held_, ""), events);
        return ToRest(c, events);
      case State::kBegin:
        if (IsJsonSpace(c)) return;
        state_ = State::kInside;
        return Take(c, events);
      case State::kInside:
        return TakeInside(c, events);
      case State::kAfter:
        if (!IsJsonSpace(c)) ToRest(c, events);
        return;
      case State::kRest:
        return;
    }
  }

  void TakeInside(char c, std::vector<ToolEvent>& events) {
    if (!Holds(c, kReasoningClose)) {
      Release(events);
      if (!Holds(c, kReasoningClose))
        return AppendText(ToolEvent::Kind::kReasoning, 0, {&c, 1}, events);
    }
    if (IsWhole(kReasoningClose)) state_ = State::kAfter;
  }

  void ToRest(char c, std::vector<ToolEvent>& events) {
    state_ = State::kRest;
    rest_->Add({&c, 1}, events);
  }

  State state_;
  std::string held_;
  size_t n_matched_ = 0;
  const std::unique_ptr<ToolParser> rest_;
};

}  // namespace

std::unique_ptr<ToolParser> MakeReasoningParser(bool begins_inside,
                                                std::unique_ptr<ToolParser> rest) {
  return std::make_unique<ReasoningParser>(begins_inside, std::move(rest));
}

}  // namespace lowkey
