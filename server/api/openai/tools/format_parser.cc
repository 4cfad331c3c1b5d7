#include "server/api/openai/tools/format_parser.h"

#include <algorithm>
#include <utility>

namespace lowkey {
namespace {

// Without calls, all text is content.
class PlainParser final : public ToolParser {
 public:
  void Add(std::string_view text, std::vector<ToolEvent>& events) override {
    AppendText(ToolEvent::Kind::kContent, 0, text, events);
  }
  void End(std::vector<ToolEvent>&) override {}
};

// Leaves out the calls after the first one.
class SingleCallParser final : public ToolParser {
 public:
  explicit SingleCallParser(std::unique_ptr<ToolParser> all) : all_(std::move(all)) {}

  void Add(std::string_view text, std::vector<ToolEvent>& events) override {
    std::vector<ToolEvent> parts;
    all_->Add(text, parts);
    Keep(std::move(parts), events);
  }
  void End(std::vector<ToolEvent>& events) override {
    std::vector<ToolEvent> parts;
    all_->End(parts);
    Keep(std::move(parts), events);
  }

 private:
  static void Keep(std::vector<ToolEvent> parts, std::vector<ToolEvent>& events) {
    for (ToolEvent& part : parts) {
      if (part.index > 0) continue;
      if (part.kind == ToolEvent::Kind::kCallBegin) {
        events.push_back(std::move(part));
      } else {
        AppendText(part.kind, 0, part.text, events);
      }
    }
  }

  const std::unique_ptr<ToolParser> all_;
};

// Leaves out a call that the end of a text of nothing but calls cuts before it begins.
class CallsOnlyParser final : public ToolParser {
 public:
  explicit CallsOnlyParser(std::unique_ptr<ToolParser> all) : all_(std::move(all)) {}

  void Add(std::string_view text, std::vector<ToolEvent>& events) override {
    all_->Add(text, events);
  }
  void End(std::vector<ToolEvent>& events) override {
    std::vector<ToolEvent> rest;
    all_->End(rest);
    for (ToolEvent& event : rest) {
      if (event.kind != ToolEvent::Kind::kContent) events.push_back(std::move(event));
    }
  }

 private:
  const std::unique_ptr<ToolParser> all_;
};

}  // namespace

void AppendText(ToolEvent::Kind kind, int index, std::string_view text,
                std::vector<ToolEvent>& events) {
  if (text.empty()) return;
  const bool joins = !events.empty() && events.back().kind == kind && events.back().index == index;
  if (!joins) events.push_back({.kind = kind, .index = index});
  events.back().text.append(text);
}

FormatParser::FormatParser() : random_(std::random_device{}()) {}

void FormatParser::Add(std::string_view text, std::vector<ToolEvent>& events) {
  events_ = &events;
  for (const char c : text) Take(c);
  events_ = nullptr;
}

void FormatParser::End(std::vector<ToolEvent>& events) {
  events_ = &events;
  // White space behind the last call is the format's own, and so is a mark that the end cuts.
  if (is_after_call_) {
    DropLast(n_matched_);
    if (HoldsOnlySpace()) DropHeld();
  }
  ReleaseHeld();
  events_ = nullptr;
}

bool FormatParser::HoldsOnlySpace() const {
  return std::all_of(held_.begin(), held_.end(), IsJsonSpace);
}

bool FormatParser::Hold(char c) {
  held_.push_back(c);
  if (held_.size() <= kMaxHeldBytes) return true;
  ReleaseHeld();
  return false;
}

void FormatParser::ReleaseHeld() {
  n_matched_ = 0;
  if (held_.empty()) return;
  if (!HoldsOnlySpace()) is_after_call_ = false;
  AppendText(ToolEvent::Kind::kContent, 0, held_, *events_);
  held_.clear();
}

void FormatParser::DropHeld() {
  n_matched_ = 0;
  held_.clear();
}

FormatParser::Match FormatParser::MatchMarker(char c, std::string_view marker) {
  if (c != marker[n_matched_]) return Match::kNone;
  ++n_matched_;
  if (!Hold(c)) return Match::kMore;
  if (n_matched_ < marker.size()) return Match::kMore;
  n_matched_ = 0;
  return Match::kWhole;
}

// A marker's first byte occurs nowhere else in it, so that a byte that breaks a match can only
// begin the next one.
bool FormatParser::TakeText(char c, std::string_view marker) {
  Match match = MatchMarker(c, marker);
  if (match == Match::kNone && n_matched_ > 0) {
    ReleaseHeld();
    match = MatchMarker(c, marker);
  }
  if (match != Match::kNone) return match == Match::kWhole;
  if (!Hold(c) || IsJsonSpace(c)) return false;
  ReleaseHeld();
  return false;
}

Scan FormatParser::TakeCall(char c, CallScanner& scanner) {
  const bool had_begun = scanner.has_begun();
  std::string arguments;
  const Scan scan = scanner.Add(c, arguments);
  if (scan == Scan::kError) {
    ReleaseHeld();
    return scan;
  }
  if (!had_begun && !scanner.has_begun()) return Hold(c) ? scan : Scan::kPast;
  if (!had_begun) {
    DropHeld();
    BeginCall(scanner.name(), MakeId());
  }
  AddArguments(arguments);
  if (scan == Scan::kDone) EndCall();
  return scan;
}

void FormatParser::BeginCall(const std::string& name, std::string id) {
  is_after_call_ = false;
  events_->push_back({.kind = ToolEvent::Kind::kCallBegin,
                      .index = n_calls_++,
                      .id = std::move(id),
                      .name = name});
}

void FormatParser::AddArguments(std::string_view text) {
  AppendText(ToolEvent::Kind::kArguments, n_calls_ - 1, text, *events_);
}

void FormatParser::EndCall() { is_after_call_ = true; }

std::string FormatParser::RandomText(std::string_view letters, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text.push_back(letters[random_() % letters.size()]);
  return text;
}

std::string FormatParser::MakeId() { return "call_" + RandomText("0123456789abcdef", 24); }

std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format, const ToolParserOptions& options) {
  std::unique_ptr<ToolParser> parser;
  switch (format) {
    case ToolFormat::kNone:
      parser = std::make_unique<PlainParser>();
      break;
    case ToolFormat::kHermes:
      parser = MakeHermesParser();
      break;
    case ToolFormat::kLlama3:
      parser = MakeLlama3Parser();
      break;
    case ToolFormat::kMistral:
      parser = MakeMistralParser();
      break;
  }
  if (options.is_single_call) parser = std::make_unique<SingleCallParser>(std::move(parser));
  const bool may_reason =
      options.may_reason || options.begins_in_reasoning || format == ToolFormat::kHermes;
  if (may_reason) parser = MakeReasoningParser(options.begins_in_reasoning, std::move(parser));
  if (options.is_calls_only) parser = std::make_unique<CallsOnlyParser>(std::move(parser));
  return parser;
}

}  // namespace lowkey
