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
  Token token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
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
    LK_ASSIGN_OR_RETURN(conditional->operands.emplace_back(), ParseOr());
    conditional->operands.push_back(std::move(value));
    if (SkipName("else")) {
      LK_ASSIGN_OR_RETURN(conditional->operands.emplace_back(), ParseExpression());
    }
    LK_ASSIGN_OR_RETURN(value, Finish(std::move(conditional)));
  }
  return value;
}

Parsed ExpressionParser::ParseOr() {
  return ParseBinary(&ExpressionParser::ParseAnd, {{.sign = "or", .kind = ExpressionKind::kOr}});
}

Parsed ExpressionParser::ParseAnd() {
  return ParseBinary(&ExpressionParser::ParseNot, {{.sign = "and", .kind = ExpressionKind::kAnd}});
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
    LK_ASSIGN_OR_RETURN(comparison->operands.emplace_back(), ParseSum());
  }
  if (comparison->comparisons.empty()) return left;
  comparison->operands.insert(comparison->operands.begin(), std::move(left));
  return Finish(std::move(comparison));
}

Parsed ExpressionParser::ParseBinary(Parsed (ExpressionParser::*parse_operand)(),
                                     std::initializer_list<BinaryOperator> operators) {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> left, (this->*parse_operand)());
  while (true) {
    const auto* found = std::find_if(operators.begin(), operators.end(), [this](const auto& op) {
      return current().IsOperator(op.sign) || current().IsName(op.sign);
    });
    if (found == operators.end()) return left;
    auto both = Make(found->kind);
    both->arithmetic = found->arithmetic;
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> right, (this->*parse_operand)());
    LK_ASSIGN_OR_RETURN(left, Finish(std::move(both), std::move(left), std::move(right)));
  }
}

Parsed ExpressionParser::ParseSum() {
  return ParseBinary(&ExpressionParser::ParseConcat,
                     {{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}});
}

Parsed ExpressionParser::ParseConcat() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> first, ParseProduct());
  if (!current().IsOperator("~")) return first;
  auto concat = Make(ExpressionKind::kConcat);
  concat->operands.push_back(std::move(first));
  while (SkipOperator("~")) {
    LK_ASSIGN_OR_RETURN(concat->operands.emplace_back(), ParseProduct());
  }
  return Finish(std::move(concat));
}

Parsed ExpressionParser::ParseProduct() {
  return ParseBinary(&ExpressionParser::ParsePower, {{"*", Arithmetic::kMultiply},
                                                     {"/", Arithmetic::kDivide},
                                                     {"//", Arithmetic::kFloorDivide},
                                                     {"%", Arithmetic::kModulo}});
}

Parsed ExpressionParser::ParsePower() {
  return ParseBinary(&ExpressionParser::ParseFiltered, {{"**", Arithmetic::kPower}});
}

Parsed ExpressionParser::ParseFiltered() {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> value, ParseUnary());
  return ParseFiltersAndTests(std::move(value));
}

Parsed ExpressionParser::ParseUnary() {
  std::unique_ptr<Expression> value;
  if (current().IsOperator("-") || current().IsOperator("+")) {
    const Nesting nesting(*this);
    LK_RETURN_IF_ERROR(nesting.status());
    auto signed_value =
        Make(current().IsOperator("-") ? ExpressionKind::kNegate : ExpressionKind::kPlus);
    Take();
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> operand, ParseUnary());
    LK_ASSIGN_OR_RETURN(value, Finish(std::move(signed_value), std::move(operand)));
  } else {
    LK_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  return ParsePostfix(std::move(value));
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

// Constants, names and brackets, and what follows them.

Parsed ExpressionParser::ParsePrimary() {
  const Token& token = current();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return ParseNumber();
  if (token.kind == TokenKind::kString) return ParseString();
  if (token.IsOperator("(")) return ParseParenthesized();
  if (token.IsOperator("[")) return ParseList();
  if (token.IsOperator("{")) return ParseDict();
  if (token.kind != TokenKind::kName) return Unexpected("an expression");
  auto name = Make(ExpressionKind::kName);
  const std::string text = Take().text;
  name->kind = ExpressionKind::kConstant;
  if (text == "true" || text == "True") {
    name->constant = Value(true);
  } else if (text == "false" || text == "False") {
    name->constant = Value(false);
  } else if (text == "none" || text == "None") {
    name->constant = Value(None());
  } else {
    name->kind = ExpressionKind::kName;
    name->text = Text(text);
  }
  return name;
}

Parsed ExpressionParser::ParseNumber() {
  auto number = Make(ExpressionKind::kConstant);
  const Token token = Take();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    if (!absl::SimpleAtod(token.text, &value)) return ErrorAt(token.line, "number not understood");
    number->constant = Value(value);
    return number;
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(token.text, &value)) {
    return ErrorAt(token.line, absl::StrCat("integer ", token.text.substr(0, 40),
                                            ": over 64 bits, which is not supported"));
  }
  number->constant = Value(value);
  return number;
}

Parsed ExpressionParser::ParseString() {
  auto string = Make(ExpressionKind::kConstant);
  std::string value;
  // Neighbors are one string, as in Python.
  while (current().kind == TokenKind::kString) value += Take().text;
  string->text = Text(std::move(value));
  string->constant = Value(&string->text);
  return string;
}

Parsed ExpressionParser::ParseParenthesized() {
  auto empty = Make(ExpressionKind::kTuple);
  Take();
  if (SkipOperator(")")) return Finish(std::move(empty));
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> value, ParseTuple());
  LK_RETURN_IF_ERROR(ExpectOperator(")"));
  return value;
}

Parsed ExpressionParser::ParseList() {
  auto list = Make(ExpressionKind::kList);
  Take();
  while (!current().IsOperator("]")) {
    LK_ASSIGN_OR_RETURN(list->operands.emplace_back(), ParseExpression());
    if (!SkipOperator(",")) break;
  }
  LK_RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(list));
}

Parsed ExpressionParser::ParseDict() {
  auto dict = Make(ExpressionKind::kDict);
  Take();
  while (!current().IsOperator("}")) {
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> key, ParseExpression());
    LK_RETURN_IF_ERROR(ExpectOperator(":"));
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> value, ParseExpression());
    dict->operands.push_back(std::move(key));
    dict->operands.push_back(std::move(value));
    if (!SkipOperator(",")) break;
  }
  LK_RETURN_IF_ERROR(ExpectOperator("}"));
  return Finish(std::move(dict));
}

Parsed ExpressionParser::ParsePostfix(std::unique_ptr<Expression> left) {
  while (true) {
    if (current().IsOperator(".")) {
      LK_ASSIGN_OR_RETURN(left, ParseAttribute(std::move(left)));
    } else if (current().IsOperator("[")) {
      LK_ASSIGN_OR_RETURN(left, ParseSubscript(std::move(left)));
    } else if (current().IsOperator("(")) {
      LK_ASSIGN_OR_RETURN(left, ParseCall(std::move(left)));
    } else {
      return left;
    }
  }
}

Parsed ExpressionParser::ParseFiltersAndTests(std::unique_ptr<Expression> left) {
  while (true) {
    if (current().IsOperator("|")) {
      Take();
      LK_ASSIGN_OR_RETURN(left, ParseFilters(std::move(left)));
    } else if (current().IsName("is")) {
      LK_ASSIGN_OR_RETURN(left, ParseTest(std::move(left)));
    } else if (current().IsOperator("(")) {
      LK_ASSIGN_OR_RETURN(left, ParseCall(std::move(left)));
    } else {
      return left;
    }
  }
}

Parsed ExpressionParser::ParseCall(std::unique_ptr<Expression> left) {
  auto call = Make(ExpressionKind::kCall);
  call->operands.push_back(std::move(left));
  LK_RETURN_IF_ERROR(ParseArguments(*call));
  return Finish(std::move(call));
}

Parsed ExpressionParser::ParseAttribute(std::unique_ptr<Expression> left) {
  Take();
  if (current().kind == TokenKind::kInteger) {
    auto subscript = Make(ExpressionKind::kSubscript);
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> index, ParseNumber());
    return Finish(std::move(subscript), std::move(left), std::move(index));
  }
  auto attribute = Make(ExpressionKind::kAttribute);
  LK_ASSIGN_OR_RETURN(std::string name, ExpectName());
  attribute->text = Text(std::move(name));
  return Finish(std::move(attribute), std::move(left));
}

Parsed ExpressionParser::ParseSubscript(std::unique_ptr<Expression> left) {
  auto subscript = Make(ExpressionKind::kSubscript);
  Take();
  subscript->operands.push_back(std::move(left));
  // An index, or up to three bounds, each of which may be left out.
  for (int i = 0; i < 3; ++i) {
    std::unique_ptr<Expression> bound;
    if (!current().IsOperator(":") && !current().IsOperator("]")) {
      LK_ASSIGN_OR_RETURN(bound, ParseExpression());
    }
    subscript->operands.push_back(std::move(bound));
    if (!SkipOperator(":")) break;
    subscript->kind = ExpressionKind::kSlice;
  }
  if (subscript->kind == ExpressionKind::kSubscript && subscript->operands[1] == nullptr) {
    return Unexpected("an index");
  }
  if (subscript->kind == ExpressionKind::kSlice) subscript->operands.resize(4);
  LK_RETURN_IF_ERROR(ExpectOperator("]"));
  return Finish(std::move(subscript));
}

absl::Status ExpressionParser::ParseArguments(Expression& call) {
  LK_RETURN_IF_ERROR(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (current().IsOperator("*") || current().IsOperator("**")) {
      return ErrorAt(current().line, "argument * or **: not supported");
    }
    if (current().kind == TokenKind::kName && Look(1).IsOperator("=")) {
      std::string name = Take().text;
      Take();
      LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> value, ParseExpression());
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) return Unexpected("an argument with a name, as before");
      LK_ASSIGN_OR_RETURN(call.operands.emplace_back(), ParseExpression());
    }
    if (!SkipOperator(",")) break;
  }
  return ExpectOperator(")");
}

Parsed ExpressionParser::ParseFilters(std::unique_ptr<Expression> input) {
  do {
    auto filter = Make(ExpressionKind::kFilter);
    LK_ASSIGN_OR_RETURN(std::string name, ExpectName());
    filter->builtin = FindBuiltin(Builtin::Kind::kFilter, name);
    if (filter->builtin == nullptr) {
      return ErrorAt(filter->line, absl::StrCat("filter ", Quoted(name), ": not supported"));
    }
    filter->text = Text(std::move(name));
    filter->operands.push_back(std::move(input));
    if (current().IsOperator("(")) LK_RETURN_IF_ERROR(ParseArguments(*filter));
    LK_ASSIGN_OR_RETURN(input, Finish(std::move(filter)));
  } while (SkipOperator("|"));
  return input;
}

Parsed ExpressionParser::ParseTest(std::unique_ptr<Expression> left) {
  Take();
  auto negated = SkipName("not") ? Make(ExpressionKind::kNot) : nullptr;
  auto test = Make(ExpressionKind::kTest);
  LK_ASSIGN_OR_RETURN(std::string name, ExpectName());
  test->builtin = FindBuiltin(Builtin::Kind::kTest, name);
  if (test->builtin == nullptr) {
    return ErrorAt(test->line, absl::StrCat("test ", Quoted(name), ": not supported"));
  }
  test->text = Text(std::move(name));
  test->operands.push_back(std::move(left));
  const Token& next = current();
  const bool is_value = next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
                        next.kind == TokenKind::kFloat || next.IsOperator("[") ||
                        next.IsOperator("{") ||
                        (next.kind == TokenKind::kName && !next.IsName("else") &&
                         !next.IsName("or") && !next.IsName("and") && !next.IsName("is") &&
                         !next.IsName("if") && !next.IsName("in") && !next.IsName("not"));
  if (next.IsOperator("(")) {
    LK_RETURN_IF_ERROR(ParseArguments(*test));
  } else if (is_value) {
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> argument, ParsePrimary());
    LK_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test->operands.push_back(std::move(argument));
  }
  LK_ASSIGN_OR_RETURN(left, Finish(std::move(test)));
  if (negated == nullptr) return left;
  return Finish(std::move(negated), std::move(left));
}

}  // namespace lowkey::jinja
