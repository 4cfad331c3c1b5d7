// The parser of statements.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/jinja/expression_parser.h"
#include "tokenizer/chat/jinja/lexer.h"
#include "tokenizer/chat/jinja/syntax.h"

namespace lowkey::jinja {
namespace {

using Ends = std::vector<std::string>;

class StatementParser {
 public:
  using Parsed = absl::StatusOr<std::unique_ptr<Statement>>;

  explicit StatementParser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  // Parses up to a tag that begins with one of `ends`, whose name is then the current token; to the
  // end of the template when there are none.
  absl::StatusOr<Body> ParseBody(const Ends& ends) {
    const ExpressionParser::Nesting nesting(in_);
    LK_RETURN_IF_ERROR(nesting.status());
    Body body;
    while (in_.current().kind != TokenKind::kEnd) {
      if (in_.current().kind == TokenKind::kBlockBegin) {
        const int line = in_.Take().line;
        const Token& name = in_.current();
        if (name.kind == TokenKind::kName && IsOneOf(name.text, ends)) return body;
        LK_ASSIGN_OR_RETURN(body.emplace_back(), ParseTag(line));
      } else {
        LK_ASSIGN_OR_RETURN(body.emplace_back(), ParseDataOrOutput());
      }
    }
    if (!ends.empty()) {
      return in_.Unexpected(absl::StrCat("{% ", absl::StrJoin(ends, " or "), " %}"));
    }
    return body;
  }

 private:
  static bool IsOneOf(std::string_view name, const Ends& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  std::unique_ptr<Statement> Make(StatementKind kind, int line) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  Parsed ParseDataOrOutput() {
    const Token token = in_.Take();
    if (token.kind == TokenKind::kData) {
      auto text = Make(StatementKind::kText, token.line);
      text->text = Text(token.text);
      return text;
    }
    auto output = Make(StatementKind::kOutput, token.line);
    LK_ASSIGN_OR_RETURN(output->value, in_.ParseTuple());
    LK_RETURN_IF_ERROR(in_.Expect(TokenKind::kOutputEnd, "}}"));
    return output;
  }

  absl::Status EndTag() { return in_.Expect(TokenKind::kBlockEnd, "%}"); }

  // Parses the body up to `end`, whose tag is taken too.
  absl::StatusOr<Body> ParseBodyAndEnd(std::string_view end) {
    LK_RETURN_IF_ERROR(EndTag());
    LK_ASSIGN_OR_RETURN(Body body, ParseBody({std::string(end)}));
    in_.Take();
    return body;
  }

  Parsed ParseTag(int line) {
    LK_ASSIGN_OR_RETURN(const std::string name, in_.ExpectName());
    Parsed statement = ParseNamed(name, line);
    if (!statement.ok()) return statement;
    LK_RETURN_IF_ERROR(EndTag());
    return statement;
  }

  // Parses from after the tag's name to before its (last) "%}".
  Parsed ParseNamed(const std::string& name, int line) {
    if (name == "for") return ParseFor(line);
    if (name == "if") return ParseIf(line);
    if (name == "set") return ParseSet(line);
    if (name == "macro") return ParseMacro(line);
    if (name == "with") return ParseWith(line);
    if (name == "filter") return ParseFilterBlock(line);
    if (name == "generation") {
      auto scope = Make(StatementKind::kScope, line);
      LK_ASSIGN_OR_RETURN(scope->body, ParseBodyAndEnd("endgeneration"));
      return scope;
    }
    if (name == "break" || name == "continue") {
      if (n_loops_ == 0) return ErrorAt(line, absl::StrCat("{% ", name, " %} outside of a loop"));
      return Make(name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
    }
    if (name.starts_with("end") || name == "else" || name == "elif") {
      return ErrorAt(line, absl::StrCat("{% ", name, " %} without its beginning"));
    }
    return ErrorAt(line, absl::StrCat("statement {% ", name, " %}: not supported"));
  }

  Parsed ParseFor(int line) {
    auto loop = Make(StatementKind::kFor, line);
    LK_ASSIGN_OR_RETURN(loop->target, ParseTargets());
    if (!in_.SkipName("in")) return in_.Unexpected("in");
    LK_ASSIGN_OR_RETURN(loop->value, in_.ParseTuple(ExpressionParser::TupleItems::kUnconditional));
    if (in_.SkipName("if")) {
      LK_ASSIGN_OR_RETURN(loop->condition, in_.ParseExpression());
    }
    if (in_.current().IsName("recursive")) {
      return ErrorAt(line, "{% for ... recursive %}: not supported");
    }
    LK_RETURN_IF_ERROR(EndTag());
    ++n_loops_;
    LK_ASSIGN_OR_RETURN(loop->body, ParseBody({"else", "endfor"}));
    --n_loops_;
    if (in_.SkipName("else")) {
      LK_ASSIGN_OR_RETURN(loop->otherwise, ParseBodyAndEnd("endfor"));
    } else {
      in_.Take();
    }
    return loop;
  }

  Parsed ParseIf(int line) {
    auto statement = Make(StatementKind::kIf, line);
    while (true) {
      Branch branch;
      LK_ASSIGN_OR_RETURN(branch.condition,
                          in_.ParseTuple(ExpressionParser::TupleItems::kUnconditional));
      LK_RETURN_IF_ERROR(EndTag());
      LK_ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}));
      statement->branches.push_back(std::move(branch));
      const std::string end = in_.Take().text;
      if (end == "endif") return statement;
      if (end == "else") {
        LK_ASSIGN_OR_RETURN(statement->otherwise, ParseBodyAndEnd("endif"));
        return statement;
      }
    }
  }

  Parsed ParseSet(int line) {
    auto set = Make(StatementKind::kSet, line);
    LK_ASSIGN_OR_RETURN(set->target, ParseTargets());
    if (in_.SkipOperator("=")) {
      LK_ASSIGN_OR_RETURN(set->value, in_.ParseTuple());
      return set;
    }
    set->kind = StatementKind::kSetBlock;
    if (!set->target.parts.empty()) return in_.Unexpected("=");
    if (in_.SkipOperator("|")) {
      LK_ASSIGN_OR_RETURN(set->value, in_.ParseFilters(nullptr));
    }
    LK_ASSIGN_OR_RETURN(set->body, ParseBodyAndEnd("endset"));
    return set;
  }

  Parsed ParseMacro(int line) {
    auto macro = Make(StatementKind::kMacro, line);
    LK_ASSIGN_OR_RETURN(macro->name, ParseAssignedName());
    LK_RETURN_IF_ERROR(in_.ExpectOperator("("));
    while (!in_.current().IsOperator(")")) {
      Parameter parameter;
      LK_ASSIGN_OR_RETURN(parameter.name, ParseAssignedName());
      if (in_.SkipOperator("=")) {
        LK_ASSIGN_OR_RETURN(parameter.default_value, in_.ParseExpression());
      } else if (!macro->parameters.empty() && macro->parameters.back().default_value != nullptr) {
        return in_.Unexpected("a default value, as the parameter before has one");
      }
      macro->parameters.push_back(std::move(parameter));
      if (!in_.SkipOperator(",")) break;
    }
    LK_RETURN_IF_ERROR(in_.ExpectOperator(")"));
    // A break inside belongs to no loop outside.
    const int n_loops = std::exchange(n_loops_, 0);
    LK_ASSIGN_OR_RETURN(macro->body, ParseBodyAndEnd("endmacro"));
    n_loops_ = n_loops;
    return macro;
  }

  Parsed ParseWith(int line) {
    auto with = Make(StatementKind::kWith, line);
    while (in_.current().kind != TokenKind::kBlockEnd) {
      Parameter variable;
      LK_ASSIGN_OR_RETURN(variable.name, ParseAssignedName());
      LK_RETURN_IF_ERROR(in_.ExpectOperator("="));
      LK_ASSIGN_OR_RETURN(variable.default_value, in_.ParseExpression());
      with->parameters.push_back(std::move(variable));
      if (!in_.SkipOperator(",")) break;
    }
    LK_ASSIGN_OR_RETURN(with->body, ParseBodyAndEnd("endwith"));
    return with;
  }

  Parsed ParseFilterBlock(int line) {
    auto block = Make(StatementKind::kFilterBlock, line);
    LK_ASSIGN_OR_RETURN(block->value, in_.ParseFilters(nullptr));
    LK_ASSIGN_OR_RETURN(block->body, ParseBodyAndEnd("endfilter"));
    return block;
  }

  // Parses a name that may be assigned to.
  absl::StatusOr<std::string> ParseAssignedName() {
    const int line = in_.current().line;
    LK_ASSIGN_OR_RETURN(std::string name, in_.ExpectName());
    constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), name) != std::end(kConstants)) {
      return ErrorAt(line, absl::StrCat(name, " cannot be assigned to"));
    }
    return name;
  }

  // Parses one target, or several with commas between.
  absl::StatusOr<Target> ParseTargets() {
    const ExpressionParser::Nesting nesting(in_);
    LK_RETURN_IF_ERROR(nesting.status());
    Target targets;
    bool has_comma = false;
    do {
      if (in_.current().kind == TokenKind::kBlockEnd || in_.current().IsOperator("=")) break;
      LK_ASSIGN_OR_RETURN(targets.parts.emplace_back(), ParseTarget());
      has_comma = has_comma || in_.current().IsOperator(",");
    } while (in_.SkipOperator(","));
    if (targets.parts.empty()) return in_.Unexpected("a name");
    if (has_comma) return targets;
    Target only = std::move(targets.parts[0]);
    return only;
  }

  absl::StatusOr<Target> ParseTarget() {
    if (in_.SkipOperator("(")) {
      LK_ASSIGN_OR_RETURN(Target targets, ParseTargets());
      LK_RETURN_IF_ERROR(in_.ExpectOperator(")"));
      return targets;
    }
    Target target;
    LK_ASSIGN_OR_RETURN(target.name, ParseAssignedName());
    if (in_.SkipOperator(".")) {
      LK_ASSIGN_OR_RETURN(target.attribute, in_.ExpectName());
    }
    return target;
  }

  ExpressionParser in_;
  int n_loops_ = 0;
};

}  // namespace

absl::StatusOr<Body> ParseTemplate(std::string_view source) {
  LK_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return StatementParser(std::move(tokens)).ParseBody({});
}

}  // namespace lowkey::jinja
