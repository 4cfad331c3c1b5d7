#ifndef LOWKEY_SERVER_API_OPENAI_TOOLS_FORMAT_PARSER_H_
#define LOWKEY_SERVER_API_OPENAI_TOOLS_FORMAT_PARSER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/openai/tools/call_scanner.h"
#include "server/api/openai/tools/tool_parser.h"

namespace lowkey {

// Appends text to the events; joins it to the last one if that is of the same kind and call.
void AppendText(ToolEvent::Kind kind, int index, std::string_view text,
                std::vector<ToolEvent>& events);

// FormatParser holds what the parsers of all formats share: they take a byte at a time, so that
// their events cannot depend on how the text is cut.
class FormatParser : public ToolParser {
 public:
  FormatParser();

  void Add(std::string_view text, std::vector<ToolEvent>& events) final;
  void End(std::vector<ToolEvent>& events) final;

 protected:
  // Takes the next byte.
  virtual void Take(char c) = 0;
  // Takes the text up to the marker, which it begins with or looks for; a byte of the text is
  // content unless it may begin the marker, or is white space that the marker may follow. Returns
  // whether the marker is whole. held() is the white space and the marker then.
  bool TakeText(char c, std::string_view marker);
  // Holds a byte and matches it with the rest of the marker, whose first n_matched() bytes are
  // held.
  enum class Match { kMore, kWhole, kNone };
  Match MatchMarker(char c, std::string_view marker);

  // Takes a byte of a call's JSON object: kDone ends the call. kError: the object is none, what was
  // held has become content, and the byte is still to be taken.
  Scan TakeCall(char c, CallScanner& scanner);
  // The same, and sets the parser's state: `after_call` once the call has ended, `text` once what
  // was held has become content. Takes the byte in every case.
  template <typename State>
  void TakeCall(char c, CallScanner& scanner, State& state, State after_call, State text) {
    const Scan scan = TakeCall(c, scanner);
    if (scan == Scan::kMore) return;
    state = scan == Scan::kDone ? after_call : text;
    if (scan == Scan::kError) Take(c);
  }

  // Holds a byte back. Past kMaxHeldBytes everything held becomes content; returns false then.
  bool Hold(char c);
  void ReleaseHeld();  // as content
  void DropHeld();     // as the format's own
  void DropLast(size_t n) { held_.resize(held_.size() - std::min(n, held_.size())); }
  const std::string& held() const { return held_; }
  // Returns whether only white space is held.
  bool HoldsOnlySpace() const;

  void BeginCall(const std::string& name, std::string id);
  void AddArguments(std::string_view text);
  void EndCall();

  // An id that no other call has. Formats that have their own form write it.
  virtual std::string MakeId();
  std::string RandomText(std::string_view letters, int n);

 private:
  std::vector<ToolEvent>* events_ = nullptr;  // of the call of Add or End
  std::string held_;
  size_t n_matched_ = 0;  // bytes of a marker, the last ones held
  int n_calls_ = 0;
  bool is_after_call_ = false;  // only white space has come since the last call's end
  std::mt19937_64 random_;
};

// Make the parsers of one format each.
std::unique_ptr<ToolParser> MakeHermesParser();
std::unique_ptr<ToolParser> MakeLlama3Parser();
std::unique_ptr<ToolParser> MakeMistralParser();
// Takes what stands between <think> and </think> out of the beginning of the text, and hands the
// rest on.
std::unique_ptr<ToolParser> MakeReasoningParser(bool begins_inside,
                                                std::unique_ptr<ToolParser> rest);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOOLS_FORMAT_PARSER_H_
