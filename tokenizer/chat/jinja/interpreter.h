#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_H_

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/jinja/syntax.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// Holds variables by name; a name that is not found here is looked for in `parent`.
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
// raise_exception or for a meaningless operation, RESOURCE_EXHAUSTED past a limit of the arena.
class Interpreter {
 public:
  // The template and what `variables` points to must outlive the interpreter, the arena the text
  // that it renders.
  Interpreter(const absl::flat_hash_map<std::string, Value>& variables, Arena& arena);

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
  // Returns what `body` writes in `scope`, through `filters` when that is not null.
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
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& call);
  absl::StatusOr<Value> CallMacro(const Macro& macro, const Arguments& arguments, int line);
  Value Lookup(const Expression& name) const;

  absl::StatusOr<Scope*> NewScope(Scope* parent, int line);

  Arena& arena_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
  std::deque<std::vector<Value>> loop_items_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
  Value block_value_;  // the input of filters that have none
  int depth_ = 0;
};

// Charges one step, and counts one level of recursion while it lives.
class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
  ~Level() { --interpreter_.depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

  absl::Status Charge() const {
    const int max_depth = interpreter_.arena_.limits().max_depth;
    if (interpreter_.depth_ > max_depth) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "more than ", max_depth, " macros, statements and operations inside each other"));
    }
    return interpreter_.arena_.ChargeStep();
  }

 private:
  Interpreter& interpreter_;
};

// Returns "line 3: filter "int": what": `status` with its place, unless it is OK.
inline absl::Status At(int line, std::string_view construct, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("line ", line, ": ", std::string(construct),
                                   construct.empty() ? "" : ": ", std::string(status.message())));
}

template <typename T>
absl::StatusOr<T> At(int line, std::string_view construct, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return At(line, construct, result.status());
}

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_INTERPRETER_H_
