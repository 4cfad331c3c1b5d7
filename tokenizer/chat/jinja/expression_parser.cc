#include "tokenizer/chat/jinja/expression_parser.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey::jinja {

using Parsed = ExpressionParser::Parsed;

std::unique_ptr<Expression> ExpressionParser::Make(ExpressionKind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = current().line;
  return expression;
}

Parsed ExpressionParser::Finish(std::unique_ptr<Expression> expression) {
  int height = 0;
  for (const auto& operand : expression->operands) {
    if (operand != nullptr) height = std::max(height, operand->height);
  }
  for (const auto& [name, value] : expression->named) height = std::max(height, value->height);
  expression->height = height + 1;
  if (expression->height <= kMaxExpressionHeight) return expression;
  return ErrorAt(expression->line,
                 absl::StrCat("expression over ", kMaxExpressionHeight, " operations deep"));
}

Parsed ExpressionParser::Finish(std::unique_ptr<Expression> expression,
                                std::unique_ptr<Expression> first,
                                std::unique_ptr<Expression> second) {
  expression->operands.push_back(std::move(first));
  if (second != nullptr) expression->operands.push_back(std::move(second));
  return Finish(std::move(expression));
}

absl::Status ExpressionParser::Nesting::status() const {
  if (parser_.n_nested_ <= kMaxNesting) return absl::OkStatus();
  return ErrorAt(parser_.current().line, absl::StrCat("nested over ", kMaxNesting, " deep"));
}

Token ExpressionParser::Take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Take();
  return true;
}

bool ExpressionParser::SkipOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Take();
  return true;
}

absl::Status ExpressionParser::Unexpected(std::string_view expected) const {
  const Token& token = current();
  std::string found = token.text.substr(0, 40);
  if (token.kind == TokenKind::kEnd) found = "the end of the template";
  if (token.kind == TokenKind::kOutputEnd) found = "}}";
  if (token.kind == TokenKind::kBlockEnd) found = "%}";
  return ErrorAt(token.line,
                 absl::StrCat("found ", Quoted(found), ", expected ", std::string(expected)));
}

absl::Status ExpressionParser::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return absl::OkStatus();
  return Unexpected(Quoted(op));
}

absl::Status ExpressionParser::Expect(TokenKind kind, std::string_view description) {
  if (current().kind != kind) return Unexpected(description);
  Take();
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::ExpectName() {
  if (current().kind != TokenKind::kName) return Unexpected("a name");
  return Take().text;
}

Parsed ExpressionParser::ParseExpression() {
  const Nesting nesting(*this);
  LK_RETURN_IF_ERROR(nesting.status());
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> value, ParseOr());
  while (current().IsName("if")) {
    auto conditional = Make(ExpressionKind::kConditional);
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> condition, ParseOr());
    conditional->operands.push_back(std::move(condition));
    conditional->operands.push_back(std::move(value));
    if (SkipName("else")) {
      LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> otherwise, ParseExpression());
      conditional->operands.push_back(std::move(otherwise));
    }
    LK_ASSIGN_OR_RETURN(value, Finish(std::move(conditional)));
  }
  return value;
}

Parsed ExpressionParser::ParseOr() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> left, ParseAnd());
  while (current().IsName("or")) {
    auto both = Make(ExpressionKind::kOr);
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> right, ParseAnd());
    LK_ASSIGN_OR_RETURN(left, Finish(std::move(both), std::move(left), std::move(right)));
  }
  return left;
}

Parsed ExpressionParser::ParseAnd() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> left, ParseNot());
  while (current().IsName("and")) {
    auto both = Make(ExpressionKind::kAnd);
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> right, ParseNot());
    LK_ASSIGN_OR_RETURN(left, Finish(std::move(both), std::move(left), std::move(right)));
  }
  return left;
}

Parsed ExpressionParser::ParseNot() {
  if (!current().IsName("not")) return ParseComparison();
  const Nesting nesting(*this);
  LK_RETURN_IF_ERROR(nesting.status());
  auto negated = Make(ExpressionKind::kNot);
  Take();
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> operand, ParseNot());
  return Finish(std::move(negated), std::move(operand));
}

std::optional<Comparison> ExpressionParser::TakeComparison() {
  constexpr std::pair<std::string_view, Comparison> kSigns[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kUnequal}, {"<", Comparison::kLess},
      {"<=", Comparison::kAtMost}, {">", Comparison::kMore},     {">=", Comparison::kAtLeast}};
  for (const auto& [sign, comparison] : kSigns) {
    if (SkipOperator(sign)) return comparison;
  }
  if (SkipName("in")) return Comparison::kIn;
  if (current().IsName("not") && Look(1).IsName("in")) {
    Take();
    Take();
    return Comparison::kNotIn;
  }
  return std::nullopt;
}

Parsed ExpressionParser::ParseComparison() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> left, ParseSum());
  auto comparison = Make(ExpressionKind::kComparison);
  while (const std::optional<Comparison> sign = TakeComparison()) {
    comparison->comparisons.push_back(*sign);
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> right, ParseSum());
    comparison->operands.push_back(std::move(right));
  }
  if (comparison->comparisons.empty()) return left;
  comparison->operands.insert(comparison->operands.begin(), std::move(left));
  return Finish(std::move(comparison));
}

Parsed ExpressionParser::ParseArithmetic(Parsed (ExpressionParser::*parse_operand)(),
                                         std::initializer_list<BinaryOperator> operators) {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> left, (this->*parse_operand)());
  while (true) {
    const auto* found = std::find_if(operators.begin(), operators.end(), [this](const auto& op) {
      return current().IsOperator(op.sign);
    });
    if (found == operators.end()) return left;
    auto both = Make(ExpressionKind::kArithmetic);
    both->arithmetic = found->arithmetic;
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> right, (this->*parse_operand)());
    LK_ASSIGN_OR_RETURN(left, Finish(std::move(both), std::move(left), std::move(right)));
  }
}

Parsed ExpressionParser::ParseSum() {
  return ParseArithmetic(&ExpressionParser::ParseConcat,
                         {{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}});
}

Parsed ExpressionParser::ParseConcat() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> first, ParseProduct());
  if (!current().IsOperator("~")) return first;
  auto concat = Make(ExpressionKind::kConcat);
  concat->operands.push_back(std::move(first));
  while (SkipOperator("~")) {
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> next, ParseProduct());
    concat->operands.push_back(std::move(next));
  }
  return Finish(std::move(concat));
}

Parsed ExpressionParser::ParseProduct() {
  return ParseArithmetic(&ExpressionParser::ParsePower, {{"*", Arithmetic::kMultiply},
                                                         {"/", Arithmetic::kDivide},
                                                         {"//", Arithmetic::kFloorDivide},
                                                         {"%", Arithmetic::kModulo}});
}

Parsed ExpressionParser::ParsePower() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> left, ParseUnary(Filtering::kYes));
  while (current().IsOperator("**")) {
    auto power = Make(ExpressionKind::kArithmetic);
    power->arithmetic = Arithmetic::kPower;
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> right, ParseUnary(Filtering::kYes));
    LK_ASSIGN_OR_RETURN(left, Finish(std::move(power), std::move(left), std::move(right)));
  }
  return left;
}

Parsed ExpressionParser::ParseUnary(Filtering filtering) {
  std::unique_ptr<Expression> value;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    const Nesting nesting(*this);
    LK_RETURN_IF_ERROR(nesting.status());
    auto signed_value =
        Make(current().IsOperator("-") ? ExpressionKind::kNegate : ExpressionKind::kPlus);
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> operand, ParseUnary(Filtering::kNo));
    LK_ASSIGN_OR_RETURN(value, Finish(std::move(signed_value), std::move(operand)));
  } else {
    LK_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  LK_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (filtering == Filtering::kNo) return value;
  return ParseFiltersAndTests(std::move(value));
}

bool ExpressionParser::IsTupleEnd() const {
  const TokenKind kind = current().kind;
  return kind == TokenKind::kOutputEnd || kind == TokenKind::kBlockEnd || kind == TokenKind::kEnd ||
         current().IsOperator(")");
}

Parsed ExpressionParser::ParseTuple(TupleItems items) {
  auto tuple = Make(ExpressionKind::kTuple);
  bool has_comma = false;
  while (!IsTupleEnd()) {
    Parsed item = items == TupleItems::kAny ? ParseExpression() : ParseUnconditional();
    if (!item.ok()) return item.status();
    tuple->operands.push_back(*std::move(item));
    if (!SkipOperator(",")) break;
    has_comma = true;
  }
  if (tuple->operands.empty()) return Unexpected("an expression");
  if (!has_comma) return std::move(tuple->operands[0]);
  return Finish(std::move(tuple));
}

}  // namespace lowkey::jinja
