#include "tokenizer/chat/jinja/interpreter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/jinja/lexer.h"
#include "tokenizer/chat/values/format.h"
#include "tokenizer/chat/values/operators.h"

namespace lowkey::jinja {
namespace {

constexpr size_t kScopeBytes = 128;

// Gives `variable` another value while this lives.
template <typename T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), outer_(std::exchange(variable, value)) {}
  ~Scoped() { variable_ = outer_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  const T outer_;
};

}  // namespace

Interpreter::Interpreter(const absl::flat_hash_map<std::string, Value>& variables, Arena& arena)
    : arena_(arena) {
  scope_ = &scopes_.emplace_back();
  for (const auto& [name, value] : variables) scope_->variables[name] = value;
}

absl::StatusOr<Text> Interpreter::Render(const Body& body) {
  Text output;
  out_ = &output;
  LK_RETURN_IF_ERROR(RunBody(body).status());
  return output;
}

absl::StatusOr<Scope*> Interpreter::NewScope(Scope* parent, int line) {
  LK_RETURN_IF_ERROR(At(line, "", arena_.ChargeBytes(kScopeBytes)));
  return &scopes_.emplace_back(Scope{.parent = parent});
}

absl::Status Interpreter::Write(const Text& text, int line) {
  LK_RETURN_IF_ERROR(At(line, "", arena_.ChargeBytes(text.held_bytes())));
  if (text.size() > arena_.limits().max_output_bytes - out_->size()) {
    return At(line, "",
              absl::ResourceExhaustedError(absl::StrCat(
                  "more than ", arena_.limits().max_output_bytes, " bytes of output")));
  }
  out_->Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunBody(const Body& body) {
  for (const std::unique_ptr<Statement>& statement : body) {
    LK_ASSIGN_OR_RETURN(const Flow flow, Run(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunInScope(const Body& body, Scope* scope) {
  const Scoped scoped(scope_, scope);
  return RunBody(body);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Statement& statement) {
  const Level level(*this);
  LK_RETURN_IF_ERROR(At(statement.line, "", level.Charge()));
  switch (statement.kind) {
    case StatementKind::kText:
      LK_RETURN_IF_ERROR(Write(statement.text, statement.line));
      return Flow::kNext;
    case StatementKind::kOutput: {
      LK_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
      LK_ASSIGN_OR_RETURN(const Text text, At(statement.line, "", ToText(value, arena_)));
      LK_RETURN_IF_ERROR(Write(text, statement.line));
      return Flow::kNext;
    }
    case StatementKind::kFor:
      return RunFor(statement);
    case StatementKind::kIf:
      return RunIf(statement);
    case StatementKind::kSet: {
      LK_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
      LK_RETURN_IF_ERROR(Assign(statement.target, value, statement.line));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
      LK_RETURN_IF_ERROR(RunSetBlock(statement));
      return Flow::kNext;
    case StatementKind::kMacro:
      LK_RETURN_IF_ERROR(DefineMacro(statement));
      return Flow::kNext;
    case StatementKind::kWith:
      return RunWith(statement);
    case StatementKind::kFilterBlock:
      LK_RETURN_IF_ERROR(RunFilterBlock(statement));
      return Flow::kNext;
    case StatementKind::kScope: {
      LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, statement.line));
      return RunInScope(statement.body, scope);
    }
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    LK_ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
    if (condition.IsTrue()) return RunBody(branch.body);
  }
  return RunBody(statement.otherwise);
}

absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& loop) {
  LK_ASSIGN_OR_RETURN(const Value value, Evaluate(*loop.value));
  LK_ASSIGN_OR_RETURN(std::vector<Value> items, At(loop.line, "for", Iterate(value, arena_)));
  if (loop.condition == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, loop.line));
    const Scoped scoped(scope_, scope);
    LK_RETURN_IF_ERROR(Assign(loop.target, item, loop.line));
    LK_ASSIGN_OR_RETURN(const Value condition, Evaluate(*loop.condition));
    if (condition.IsTrue()) kept.push_back(item);
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunFor(const Statement& loop) {
  LK_ASSIGN_OR_RETURN(std::vector<Value> visited, LoopItems(loop));
  const std::vector<Value>& items = loop_items_.emplace_back(std::move(visited));
  if (items.empty()) {
    LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, loop.line));
    return RunInScope(loop.otherwise, scope);
  }
  // Kept to the end, as the template may have kept the loop.
  Loop& state = loops_.emplace_back();
  state.items = &items;
  for (size_t i = 0; i < items.size(); ++i) {
    state.index0 = i;
    LK_RETURN_IF_ERROR(At(loop.line, "for", arena_.ChargeStep()));
    LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, loop.line));
    scope->variables["loop"] = Value(&state);
    const Scoped scoped(scope_, scope);
    LK_RETURN_IF_ERROR(Assign(loop.target, items[i], loop.line));
    LK_ASSIGN_OR_RETURN(const Flow flow, RunBody(loop.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Assign(const Target& target, const Value& value, int line) {
  if (!target.parts.empty()) return Unpack(target, value, line);
  if (target.attribute.empty()) {
    scope_->variables[target.name] = value;
    return absl::OkStatus();
  }
  Namespace* space = nullptr;
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto it = scope->variables.find(target.name);
    if (it == scope->variables.end()) continue;
    space = it->second.AsNamespace();
    break;
  }
  if (space == nullptr) {
    return ErrorAt(line, absl::StrCat("set ", target.name, ".", target.attribute, ": ", target.name,
                                      " is no namespace"));
  }
  if (target.attribute.starts_with('_')) {
    return ErrorAt(line, absl::StrCat("set ", target.name, ".", target.attribute,
                                      ": refused, it begins with an underscore"));
  }
  space->attributes[target.attribute] = value;
  return absl::OkStatus();
}

absl::Status Interpreter::Unpack(const Target& target, const Value& value, int line) {
  LK_ASSIGN_OR_RETURN(const std::vector<Value> values, At(line, "unpack", Iterate(value, arena_)));
  if (values.size() != target.parts.size()) {
    return ErrorAt(
        line, absl::StrCat("unpack: ", values.size(), " values, expected ", target.parts.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    LK_RETURN_IF_ERROR(Assign(target.parts[i], values[i], line));
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::Capture(const Body& body, Scope* scope,
                                           const Expression* filters) {
  Text text;
  {
    const Scoped scoped(out_, &text);
    LK_RETURN_IF_ERROR(RunInScope(body, scope).status());
  }
  LK_ASSIGN_OR_RETURN(const Value value, arena_.MakeText(std::move(text)));
  if (filters == nullptr) return value;
  const Scoped scoped(block_value_, value);
  return Evaluate(*filters);
}

absl::Status Interpreter::RunSetBlock(const Statement& set) {
  LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, set.line));
  LK_ASSIGN_OR_RETURN(const Value value, Capture(set.body, scope, set.value.get()));
  return Assign(set.target, value, set.line);
}

absl::Status Interpreter::RunFilterBlock(const Statement& block) {
  LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, block.line));
  LK_ASSIGN_OR_RETURN(const Value value, Capture(block.body, scope, block.value.get()));
  LK_ASSIGN_OR_RETURN(const Text text, At(block.line, "", ToText(value, arena_)));
  return Write(text, block.line);
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunWith(const Statement& with) {
  LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(scope_, with.line));
  for (const Parameter& variable : with.parameters) {
    LK_ASSIGN_OR_RETURN(const Value value, Evaluate(*variable.default_value));
    scope->variables[variable.name] = value;
  }
  return RunInScope(with.body, scope);
}

absl::Status Interpreter::DefineMacro(const Statement& macro) {
  LK_RETURN_IF_ERROR(At(macro.line, "", arena_.ChargeBytes(kScopeBytes)));
  scope_->variables[macro.name] = Value(&macros_.emplace_back(Macro{&macro, scope_}));
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::CallMacro(const Macro& macro, const Arguments& arguments,
                                             int line) {
  const std::vector<Parameter>& parameters = macro.definition->parameters;
  const std::string construct = absl::StrCat("macro ", macro.definition->name);
  LK_ASSIGN_OR_RETURN(Scope * scope, NewScope(macro.scope, line));
  if (arguments.positional.size() > parameters.size()) {
    return ErrorAt(line, absl::StrCat(construct, ": ", arguments.positional.size(),
                                      " arguments, expected at most ", parameters.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    scope->variables[parameters[i].name] = arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    size_t i = 0;
    while (i < parameters.size() && parameters[i].name != name) ++i;
    if (i == parameters.size() || i < arguments.positional.size()) {
      return ErrorAt(line,
                     absl::StrCat(construct, ": argument ", std::string(name), " not expected"));
    }
    scope->variables[parameters[i].name] = value;
  }
  for (const Parameter& parameter : parameters) {
    if (scope->variables.contains(parameter.name)) continue;
    Value value(Undefined{&parameter.name});
    if (parameter.default_value != nullptr) {
      const Scoped scoped(scope_, scope);
      LK_ASSIGN_OR_RETURN(value, Evaluate(*parameter.default_value));
    }
    scope->variables[parameter.name] = value;
  }
  return Capture(macro.definition->body, scope, nullptr);
}

}  // namespace lowkey::jinja
