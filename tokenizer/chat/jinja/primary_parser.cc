// What operators apply to: constants, names, brackets, and what follows them.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/chat/jinja/expression_parser.h"

namespace lowkey::jinja {

using Parsed = ExpressionParser::Parsed;

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
  const Text* text = &string->text;
  string->constant = Value(text);
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
    LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> item, ParseExpression());
    list->operands.push_back(std::move(item));
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
      LK_ASSIGN_OR_RETURN(std::unique_ptr<Expression> value, ParseExpression());
      call.operands.push_back(std::move(value));
    }
    if (!SkipOperator(",")) break;
  }
  return ExpectOperator(")");
}

Parsed ExpressionParser::ParseFilters(std::unique_ptr<Expression> input) {
  do {
    auto filter = Make(ExpressionKind::kFilter);
    LK_ASSIGN_OR_RETURN(std::string name, ExpectName());
    filter->filter = FindFilter(name);
    if (filter->filter == nullptr) {
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
  test->test = FindTest(name);
  if (test->test == nullptr) {
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
