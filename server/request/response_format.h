#ifndef LOWKEY_SERVER_REQUEST_RESPONSE_FORMAT_H_
#define LOWKEY_SERVER_REQUEST_RESPONSE_FORMAT_H_

#include <string>
#include <vector>

namespace lowkey {

// A part of the text around the calls of tools.
struct CallMark {
  enum class Kind {
    kText,   // the bytes of `text`
    kPiece,  // the same bytes, or the control piece of that name
    kSpace,  // no white space, or as much as JSON has between two tokens
  };
  Kind kind = Kind::kText;
  std::string text = {};
};
using CallMarks = std::vector<CallMark>;

// An answer that calls tools and says nothing else.
struct ToolCallsForm {
  struct Tool {
    std::string field;     // what errors call the schema
    std::string schema;    // the JSON Schema of the arguments, which are an object
    CallMarks begin, end;  // around the arguments
  };
  std::vector<Tool> tools = {};
  CallMarks begin = {}, separator = {}, end = {};  // before, between and after the calls
  int most_calls = 1;

  // The text in <think> and </think> before the calls.
  enum class Reasoning {
    kNone,
    kAllowed,  // the answer may begin with <think>
    kBegun,    // the prompt ends with <think>
  };
  Reasoning reasoning = Reasoning::kNone;
};

// The form of every answer to a request: tokens that would leave the form are never drawn. A plain
// description; TextService compiles it and reports what is wrong with it.
struct ResponseFormat {
  enum class Kind {
    kJsonObject,  // any JSON object; `text` is empty
    kJsonSchema,  // JSON that a JSON Schema in `text` accepts
    kRegex,       // a text that the regular expression in `text` matches as a whole
    kChoice,      // one of `choices`
    kGrammar,     // a text of the grammar in `text` (docs/structured_output.md)
    kToolCalls,   // `calls`
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};  // kChoice alone
  ToolCallsForm calls = {};               // kToolCalls alone
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_RESPONSE_FORMAT_H_
