#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat/builtins/arguments.h"
#include "tokenizer/chat/builtins/functions.h"
#include "tokenizer/chat/jinja/syntax.h"
#include "tokenizer/chat/values/arena.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// Variables by name; what is not found here is looked for in `parent`.
struct Scope {
  absl::flat_hash_map<std::string_view, Value> variables = {};
  Scope* parent = nullptr;
};

// A macro with the scope that it was defined in.
struct Macro {
  const Statement* definition;
  Scope* scope;
};

// Runs a parsed template once. Errors name the line: INVALID_ARGUMENT from the template's own
// raise_exception or for what has no meaning, RESOURCE_EXHAUSTED past a limit of the arena.
class Interpreter {
 public:
  // The template and what `variables` points to must outlive the interpreter, the arena what it
  // renders.
  Interpreter(const absl::flat_hash_map<std::string, Value>& variables, const Clock& clock,
              Arena& arena);

  absl::StatusOr<Text> Render(const Body& body);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // One level of evaluation while it lives.
  class Level;

  // Statements.
  absl::StatusOr<Flow> RunBody(const Body& body);
  absl::StatusOr<Flow> Run(const Statement& statement);
  absl::StatusOr<Flow> RunFor(const Statement& loop);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunInScope(const Body& body, Scope* scope);
  absl::Status RunSetBlock(const Statement& set);
  absl::Status RunFilterBlock(const Statement& block);
  absl::StatusOr<Flow> RunWith(const Statement& with);
  absl::Status DefineMacro(const Statement& macro);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& loop);
  absl::Status Assign(const Target& target, const Value& value, int line);
  absl::Status Unpack(const Target& target, const Value& value, int line);
  // What `body` writes, in a new scope under `parent`, through `filters` when not null.
  absl::StatusOr<Value> Capture(const Body& body, Scope* scope, const Expression* filters);
  absl::Status Write(const Text& text, int line);

  // Expressions.
  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> EvaluateKind(const Expression& expression);
  absl::StatusOr<std::vector<Value>> EvaluateOperands(const Expression& expression, size_t from);
  absl::StatusOr<Value> EvaluateDict(const Expression& expression);
  absl::StatusOr<Value> EvaluateConditional(const Expression& expression);
  absl::StatusOr<Value> EvaluateConcat(const Expression& expression);
  absl::StatusOr<Value> EvaluateComparison(const Expression& expression);
  absl::StatusOr<Value> EvaluateSlice(const Expression& expression);
  absl::StatusOr<Value> EvaluateCall(const Expression& expression);
  absl::StatusOr<Value> EvaluateFilterOrTest(const Expression& expression);
  absl::StatusOr<bool> Holds(Comparison comparison, const Value& a, const Value& b);
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& call);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const Arguments& arguments, int line);
  Value Lookup(const Expression& name) const;

  absl::StatusOr<Scope*> NewScope(Scope* parent, int line);

  const Clock clock_;
  Arena& arena_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
  std::deque<std::vector<Value>> loop_items_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  Value block_value_;  // what filters without an input apply to
  int depth_ = 0;
};

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_H_
