#ifndef LOWKEY_SERVER_API_OPENAI_TOOLS_TOOL_PARSER_H_
#define LOWKEY_SERVER_API_OPENAI_TOOLS_TOOL_PARSER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/openai/tools/tool_format.h"

namespace lowkey {

// A part of an answer.
struct ToolEvent {
  enum class Kind {
    kContent,    // text for the user
    kReasoning,  // text that the model wrote for itself
    kCallBegin,  // call `index`, from 0, of the tool `name`
    kArguments   // more of the JSON text of the arguments of call `index`
  };
  bool operator==(const ToolEvent&) const = default;

  Kind kind = Kind::kContent;
  std::string text = {};  // of all but kCallBegin
  int index = 0;          // of kCallBegin and kArguments
  std::string id = {}, name = {};
};

// The most text that a parser holds back because it may become a call. Longer text is content.
inline constexpr size_t kMaxHeldBytes = size_t{64} << 10;

// Finds the calls in the text of one choice, as it comes. Text that may begin a call is held back;
// what turns out to be no call is content, so that nothing is lost but the format's own marks and
// the white space around them. A call begins once its name is known and its arguments begin;
// should the text stop being JSON after that, the rest of it is content, and the arguments are cut.
// However the text is cut into pieces, the events join to the same ones. Not thread-safe.
class ToolParser {
 public:
  virtual ~ToolParser() = default;

  // Takes more of the text and appends what is now certain. Neighbors of one kind are joined.
  virtual void Add(std::string_view text, std::vector<ToolEvent>& events) = 0;
  // The text has ended: appends the rest. Call it once, last.
  virtual void End(std::vector<ToolEvent>& events) = 0;
};

struct ToolParserOptions {
  // Says whether the text may begin with <think>; that of kHermes always may.
  bool may_reason = false;
  bool begins_in_reasoning = false;  // EndsInReasoning of the prompt
  bool is_single_call = false;       // the calls after the first one are left out
  bool is_calls_only = false;        // the text has calls alone, by a constraint
};

std::unique_ptr<ToolParser> MakeToolParser(ToolFormat format,
                                           const ToolParserOptions& options = {});

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOOLS_TOOL_PARSER_H_
