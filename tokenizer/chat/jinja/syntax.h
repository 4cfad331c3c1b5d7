#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_SYNTAX_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_SYNTAX_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/values/operators.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// A parsed template. Immutable; values that a rendering makes may point into it.

enum class ExpressionKind {
  kConstant,     // constant
  kName,         // text
  kList,         // operands
  kTuple,        // operands
  kDict,         // operands: key, value, key, value, ...
  kNot,          // operands[0]
  kNegate,       // operands[0]
  kPlus,         // operands[0]
  kAnd,          // operands[0], [1]
  kOr,           // operands[0], [1]
  kConditional,  // [1] if [0] else [2]; without [2]: undefined
  kArithmetic,   // [0] arithmetic [1]
  kConcat,       // operands, as strings
  kComparison,   // [0] comparisons[0] [1] comparisons[1] [2] ...
  kAttribute,    // [0].text
  kSubscript,    // [0][ [1] ]
  kSlice,        // [0][ [1] : [2] : [3] ], each of which may be null
  kCall,         // [0](operands from [1] on, named)
  kFilter,       // [0] | text(operands from [1] on, named); null [0]: what a filter block holds
  kTest,         // [0] is text(operands from [1] on, named)
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 1;
  Text text = Text();  // a name, or what a string constant points to
  Value constant = {};
  std::vector<std::unique_ptr<Expression>> operands = {};
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named = {};
  Arithmetic arithmetic = Arithmetic::kAdd;
  std::vector<Comparison> comparisons = {};
  const Builtin* builtin = nullptr;  // the filter or test
  int height = 1;                    // 1 + the highest operand
};

enum class StatementKind {
  kText,         // text
  kOutput,       // value
  kFor,          // for target in value if condition: body, else: otherwise
  kIf,           // branches, else: otherwise
  kSet,          // target = value
  kSetBlock,     // target = body, through value when it is not null (filters)
  kMacro,        // name, parameters: body
  kWith,         // names = values: body
  kFilterBlock,  // body through value
  kScope,        // body, in a scope of its own
  kBreak,
  kContinue,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

// The target of an assignment: a name, an attribute of a namespace, or several of them.
struct Target {
  std::string name = {};
  std::string attribute = {};      // empty: the name itself
  std::vector<Target> parts = {};  // not empty: unpacks, and the others are empty
};

struct Branch {
  std::unique_ptr<Expression> condition;
  Body body;
};

struct Parameter {
  std::string name;
  std::unique_ptr<Expression> default_value;  // may be null
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 1;
  Text text = Text();
  std::string name = {};
  Target target = {};
  std::unique_ptr<Expression> value = nullptr;
  std::unique_ptr<Expression> condition = nullptr;
  std::vector<Branch> branches = {};
  std::vector<Parameter> parameters = {};
  Body body = {}, otherwise = {};
};

// Parses a template, which may be hostile. INVALID_ARGUMENT, naming line and construct:
// malformed, a statement, filter or test that is not supported, or nested too deep.
absl::StatusOr<Body> ParseTemplate(std::string_view source);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_SYNTAX_H_
