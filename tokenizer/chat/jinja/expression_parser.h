#ifndef LOWKEY_TOKENIZER_CHAT_JINJA_EXPRESSION_PARSER_H_
#define LOWKEY_TOKENIZER_CHAT_JINJA_EXPRESSION_PARSER_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat/jinja/lexer.h"
#include "tokenizer/chat/jinja/syntax.h"

namespace lowkey::jinja {

// Bounds of the nesting of tags and expressions, which the parser and the interpreter recurse over.
inline constexpr int kMaxNesting = 100;
inline constexpr int kMaxExpressionHeight = 100;

// Reads expressions, by the grammar and precedence of jinja2, from a stream of tokens that it
// shares with the parser of statements. Errors are INVALID_ARGUMENT and name the line and what was
// found.
class ExpressionParser {
 public:
  using Parsed = absl::StatusOr<std::unique_ptr<Expression>>;

  // `tokens` ends with kEnd.
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Parsed ParseExpression();
  // Parses no `a if b else c`, which would take the condition of a loop for its own.
  Parsed ParseUnconditional() { return ParseOr(); }
  // Parses one expression, or a tuple of several with commas between.
  enum class TupleItems { kAny, kUnconditional };
  Parsed ParseTuple(TupleItems items = TupleItems::kAny);
  // Parses `name(arguments) | name ...`, applied to the value of `input`, which may be null.
  Parsed ParseFilters(std::unique_ptr<Expression> input);

  // The stream of tokens.
  const Token& current() const { return tokens_[position_]; }
  const Token& Look(size_t n) const { return tokens_[std::min(position_ + n, tokens_.size() - 1)]; }
  Token Take();
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status Expect(TokenKind kind, std::string_view description);
  absl::StatusOr<std::string> ExpectName();
  // Returns the error "line 3: found "x", expected y".
  absl::Status Unexpected(std::string_view expected) const;

  // Counts one level of nesting while it lives. status() is an error past the bound.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser) : parser_(parser) { ++parser_.n_nested_; }
    ~Nesting() { --parser_.n_nested_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    absl::Status status() const;

   private:
    ExpressionParser& parser_;
  };

 private:
  struct BinaryOperator {
    std::string_view sign;  // "+", or a word: "and"
    Arithmetic arithmetic = Arithmetic::kAdd;
    ExpressionKind kind = ExpressionKind::kArithmetic;
  };

  Parsed ParseOr();
  Parsed ParseAnd();
  Parsed ParseNot();
  Parsed ParseComparison();
  Parsed ParseSum();
  Parsed ParseConcat();
  Parsed ParseProduct();
  Parsed ParsePower();
  Parsed ParseFiltered();
  Parsed ParseUnary();
  Parsed ParsePrimary();
  Parsed ParseNumber();
  Parsed ParseString();
  Parsed ParseList();
  Parsed ParseDict();
  Parsed ParseParenthesized();
  Parsed ParsePostfix(std::unique_ptr<Expression> left);
  Parsed ParseFiltersAndTests(std::unique_ptr<Expression> left);
  Parsed ParseCall(std::unique_ptr<Expression> left);
  Parsed ParseAttribute(std::unique_ptr<Expression> left);
  Parsed ParseSubscript(std::unique_ptr<Expression> left);
  Parsed ParseTest(std::unique_ptr<Expression> left);
  absl::Status ParseArguments(Expression& call);
  // Parses `left op right op ...`, from the left.
  Parsed ParseBinary(Parsed (ExpressionParser::*parse_operand)(),
                     std::initializer_list<BinaryOperator> operators);
  std::optional<Comparison> TakeComparison();
  bool IsTupleEnd() const;

  std::unique_ptr<Expression> Make(ExpressionKind kind) const;
  // Takes an expression whose operands are in place, and checks its number of levels.
  static Parsed Finish(std::unique_ptr<Expression> expression);
  static Parsed Finish(std::unique_ptr<Expression> expression, std::unique_ptr<Expression> first,
                       std::unique_ptr<Expression> second = nullptr);

  std::vector<Token> tokens_;
  size_t position_ = 0;
  int n_nested_ = 0;
};

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_JINJA_EXPRESSION_PARSER_H_
