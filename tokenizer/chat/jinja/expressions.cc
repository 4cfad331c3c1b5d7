// The interpreter's expressions.
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/builtins/builtins.h"
#include "tokenizer/chat/jinja/interpreter.h"
#include "tokenizer/chat/jinja/lexer.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey::jinja {

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  const Level level(*this);
  LK_RETURN_IF_ERROR(At(expression.line, "", level.Charge()));
  return EvaluateKind(expression);
}

absl::StatusOr<Value> Interpreter::EvaluateKind(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.constant;
    case ExpressionKind::kName:
      return Lookup(expression);
    case ExpressionKind::kDict:
      return EvaluateDict(expression);
    case ExpressionKind::kConditional:
      return EvaluateConditional(expression);
    case ExpressionKind::kConcat:
      return EvaluateConcat(expression);
    case ExpressionKind::kComparison:
      return EvaluateComparison(expression);
    case ExpressionKind::kSlice:
      return EvaluateSlice(expression);
    case ExpressionKind::kCall:
      return EvaluateCall(expression);
    case ExpressionKind::kFilter:
    case ExpressionKind::kTest:
      return EvaluateFilterOrTest(expression);
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      LK_ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateOperands(expression, 0));
      const bool is_tuple = expression.kind == ExpressionKind::kTuple;
      return At(expression.line, "", arena_.MakeSequence({std::move(items), is_tuple}));
    }
    default:
      break;
  }
  LK_ASSIGN_OR_RETURN(const Value left, Evaluate(*expression.operands[0]));
  switch (expression.kind) {
    case ExpressionKind::kNot:
      return Value(!left.IsTrue());
    case ExpressionKind::kAnd:
      return left.IsTrue() ? Evaluate(*expression.operands[1]) : left;
    case ExpressionKind::kOr:
      return left.IsTrue() ? left : Evaluate(*expression.operands[1]);
    case ExpressionKind::kAttribute:
      return At(expression.line, absl::StrCat(".", expression.text.bytes()),
                GetAttribute(left, expression.text, arena_));
    case ExpressionKind::kNegate:
      return At(expression.line, "", Negate(left));
    case ExpressionKind::kPlus:
      return left;
    default:
      break;
  }
  LK_ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[1]));
  if (expression.kind == ExpressionKind::kSubscript) {
    return At(expression.line, "[...]", GetSubscript(left, right, arena_));
  }
  return At(expression.line, "", Calculate(expression.arithmetic, left, right, arena_));
}

Value Interpreter::Lookup(const Expression& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto it = scope->variables.find(name.text.bytes());
    if (it != scope->variables.end()) return it->second;
  }
  const Builtin* function = FindBuiltin(Builtin::Kind::kFunction, name.text.bytes());
  return function != nullptr ? Value(function) : Value(Undefined{&name.text.bytes()});
}

absl::StatusOr<std::vector<Value>> Interpreter::EvaluateOperands(const Expression& expression,
                                                                 size_t from) {
  std::vector<Value> values;
  for (size_t i = from; i < expression.operands.size(); ++i) {
    LK_ASSIGN_OR_RETURN(values.emplace_back(), Evaluate(*expression.operands[i]));
  }
  return values;
}

absl::StatusOr<Value> Interpreter::EvaluateDict(const Expression& expression) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> values, EvaluateOperands(expression, 0));
  Dict dict;
  for (size_t i = 0; i + 1 < values.size(); i += 2) {
    const Text* key = values[i].AsText();
    if (key == nullptr) {
      return ErrorAt(expression.line, absl::StrCat("dict key: ", std::string(values[i].TypeName()),
                                                   ", only str is supported"));
    }
    LK_RETURN_IF_ERROR(At(expression.line, "", arena_.ChargeBytes(key->size())));  // it is hashed
    dict.Set(key, values[i + 1]);
  }
  return At(expression.line, "", arena_.MakeDict(std::move(dict)));
}

absl::StatusOr<Value> Interpreter::EvaluateConditional(const Expression& expression) {
  LK_ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.operands[0]));
  if (condition.IsTrue()) return Evaluate(*expression.operands[1]);
  return expression.operands.size() > 2 ? Evaluate(*expression.operands[2]) : Value();
}

absl::StatusOr<Value> Interpreter::EvaluateConcat(const Expression& expression) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> values, EvaluateOperands(expression, 0));
  Text text;
  for (const Value& value : values) {
    LK_ASSIGN_OR_RETURN(const Text part, At(expression.line, "~", ToText(value, arena_)));
    text.Append(part);
  }
  return At(expression.line, "~", arena_.MakeText(std::move(text)));
}

absl::StatusOr<Value> Interpreter::EvaluateComparison(const Expression& expression) {
  LK_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    LK_ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[i + 1]));
    LK_ASSIGN_OR_RETURN(
        const bool holds,
        At(expression.line, "", Holds(expression.comparisons[i], left, right, arena_)));
    if (!holds) return Value(false);
    left = right;
  }
  return Value(true);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& expression) {
  LK_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  SliceBounds bounds;
  std::optional<int64_t>* const places[] = {&bounds.begin, &bounds.end, &bounds.step};
  for (size_t i = 0; i < 3; ++i) {
    const Expression* operand = expression.operands[i + 1].get();
    if (operand == nullptr) continue;
    LK_ASSIGN_OR_RETURN(const Value bound, Evaluate(*operand));
    if (bound.is_none()) continue;
    *places[i] = bound.AsInt();
    if (!places[i]->has_value()) {
      return ErrorAt(expression.line,
                     absl::StrCat("slice: ", std::string(bound.TypeName()), ", expected int"));
    }
  }
  return At(expression.line, "slice", Slice(value, bounds, arena_));
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const Expression& call) {
  Arguments arguments;
  LK_ASSIGN_OR_RETURN(arguments.positional, EvaluateOperands(call, 1));
  for (const auto& [name, expression] : call.named) {
    LK_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
    arguments.named.emplace_back(name, value);
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& expression) {
  LK_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.operands[0]));
  LK_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  if (const Macro* macro = callee.AsMacro()) {
    return CallMacro(*macro, arguments, expression.line);
  }
  if (const Method* method = callee.AsMethod()) {
    return At(expression.line, method->method->name,
              CallBuiltin(*method->method, method->receiver, arguments, arena_));
  }
  if (const Builtin* function = callee.AsFunction()) {
    return At(expression.line, "", CallBuiltin(*function, Value(), arguments, arena_));
  }
  if (callee.is_undefined()) return At(expression.line, "call", UndefinedError(callee));
  return ErrorAt(expression.line,
                 absl::StrCat("call: ", std::string(callee.TypeName()), " cannot be called"));
}

absl::StatusOr<Value> Interpreter::EvaluateFilterOrTest(const Expression& expression) {
  const Expression* operand = expression.operands[0].get();
  Value input = block_value_;
  if (operand != nullptr) {
    LK_ASSIGN_OR_RETURN(input, Evaluate(*operand));
  }
  LK_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression));
  const char* kind = expression.kind == ExpressionKind::kFilter ? "filter " : "test ";
  return At(expression.line, absl::StrCat(kind, Quoted(expression.text.bytes())),
            CallBuiltin(*expression.builtin, input, arguments, arena_));
}

}  // namespace lowkey::jinja
