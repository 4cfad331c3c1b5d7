#include "server/grammar/syntax/ebnf.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/automaton/expression.h"
#include "server/grammar/syntax/character_reader.h"
#include "tokenizer/utf8.h"

namespace lowkey::grammar {
namespace {

// Rules of at most this many nodes that call none take the place of their calls: less stays open.
constexpr int kSmallRule = 64;

bool IsNameChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

// Counts the nodes of an expression; kSmallRule + 1 or more for one that is large or calls rules.
int WeightOf(const Expression& e) {
  int weight = 1 + static_cast<int>(e.text.size() + e.chars.ranges().size());
  if (e.kind == Expression::Kind::kCall) return kSmallRule + 1;
  for (const ExpressionPtr& part : e.parts) {
    weight += WeightOf(*part);
    if (weight > kSmallRule) return weight;
  }
  if (e.kind == Expression::Kind::kRepeat) weight *= std::max({1, e.min, e.max});
  return weight;
}

class EbnfParser {
 public:
  explicit EbnfParser(std::string_view text) : reader_(text, "grammar") {}

  struct Rule {
    std::string name = {};
    ExpressionPtr body = nullptr;
  };

  // Returns the rules by their numbers, which calls have.
  absl::StatusOr<std::vector<Rule>> Parse() {
    SkipBlanks(true);
    while (!reader_.at_end()) {
      LK_RETURN_IF_ERROR(ParseRule());
      SkipBlanks(true);
    }
    if (rules_.empty()) return reader_.Error("no rule, expected name ::= expression");
    for (const Rule& rule : rules_) {
      if (rule.body != nullptr) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("grammar: rule ", rule.name, " is called but not defined"));
    }
    return std::move(rules_);
  }
  int32_t first() const { return first_; }

 private:
  // A line that ends outside of parentheses ends its rule, unless the next begins with "|".
  void SkipBlanks(bool over_lines) {
    while (!reader_.at_end()) {
      const char c = reader_.peek();
      if (c == '#') {
        const size_t end = reader_.rest().find('\n');
        reader_.Drop(end == std::string_view::npos ? reader_.rest().size() : end);
      } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && over_lines)) {
        reader_.Drop(1);
      } else {
        return;
      }
    }
  }

  std::string TakeName() {
    size_t n = 0;
    while (n < reader_.rest().size() && IsNameChar(reader_.rest()[n])) ++n;
    std::string name(reader_.rest().substr(0, n));
    reader_.Drop(n);
    return name;
  }

  int32_t RuleOf(const std::string& name) {
    const auto [found, is_new] = numbers_.try_emplace(name, static_cast<int32_t>(rules_.size()));
    if (is_new) rules_.push_back({name});
    return found->second;
  }

  absl::Status ParseRule() {
    const std::string name = TakeName();
    if (name.empty()) return reader_.Error("expected a rule's name");
    SkipBlanks(false);
    if (!reader_.Take("::=")) return reader_.Error(absl::StrCat("expected ::= after ", name));
    const int32_t rule = RuleOf(name);
    if (rules_[rule].body != nullptr) {
      return reader_.Error(absl::StrCat("rule ", name, " comes twice"));
    }
    if (first_ < 0) first_ = rule;
    SkipBlanks(true);
    LK_ASSIGN_OR_RETURN(ExpressionPtr body, ParseBranches(0));
    if (!reader_.at_end() && !reader_.Take("\n")) {
      return reader_.Error(absl::StrCat("\"", std::string(1, reader_.peek()),
                                        "\", expected the end of the rule's line"));
    }
    rules_[rule].body = std::move(body);
    return absl::OkStatus();
  }

  // Returns whether a "|" comes, maybe on a later line.
  bool TakeBar(bool over_lines) {
    SkipBlanks(over_lines);
    if (reader_.Take("|")) return true;
    const size_t next = reader_.rest().find_first_not_of(" \t\r\n");
    if (over_lines || next == std::string_view::npos || reader_.rest()[next] != '|') return false;
    reader_.Drop(next + 1);
    return true;
  }

  absl::StatusOr<ExpressionPtr> ParseBranches(int depth) {
    if (depth > kMaxNesting) {
      return reader_.Error(absl::StrCat("groups nested deeper than ", kMaxNesting));
    }
    std::vector<ExpressionPtr> branches;
    do {
      SkipBlanks(true);
      LK_ASSIGN_OR_RETURN(ExpressionPtr branch, ParseBranch(depth));
      branches.push_back(std::move(branch));
    } while (TakeBar(depth > 0));
    return branches.size() == 1 ? branches[0] : Choice(std::move(branches));
  }

  absl::StatusOr<ExpressionPtr> ParseBranch(int depth) {
    std::vector<ExpressionPtr> parts;
    for (;;) {
      SkipBlanks(depth > 0);
      const char c = reader_.peek();
      if (reader_.at_end() || c == '|' || c == ')' || c == '\n') break;
      LK_ASSIGN_OR_RETURN(ExpressionPtr part, ParseAtom(depth));
      for (;;) {
        LK_ASSIGN_OR_RETURN(const std::optional<CharacterReader::Count> count, reader_.ReadCount());
        if (!count.has_value()) break;
        part = Repeat(std::move(part), count->min, count->max);
        if (reader_.Looks("*") || reader_.Looks("+") || reader_.Looks("?") || reader_.Looks("{")) {
          return reader_.Error("a repetition of a repetition, expected a group around the first");
        }
      }
      parts.push_back(std::move(part));
    }
    return Sequence(std::move(parts));
  }

  absl::StatusOr<ExpressionPtr> ParseAtom(int depth) {
    if (reader_.Take("\"")) return ParseLiteral();
    if (reader_.Take("[")) {
      LK_ASSIGN_OR_RETURN(CharSet set, reader_.ReadClass());
      return Chars(std::move(set));
    }
    if (reader_.Take(".")) return Chars(CharSet::All());
    if (reader_.Take("(")) {
      LK_ASSIGN_OR_RETURN(ExpressionPtr inside, ParseBranches(depth + 1));
      if (!reader_.Take(")")) return reader_.Error("a ( without its )");
      return inside;
    }
    const std::string name = TakeName();
    if (!name.empty()) return Call(RuleOf(name));
    return reader_.Error(
        "expected \"text\", a class such as [a-z], \".\", a rule's name or a group in parentheses");
  }

  absl::StatusOr<ExpressionPtr> ParseLiteral() {
    std::string text;
    while (!reader_.Take("\"")) {
      if (reader_.at_end() || reader_.Looks("\n")) {
        return reader_.Error("a text without its closing quote");
      }
      uint32_t character = 0;
      if (reader_.Take("\\")) {
        LK_ASSIGN_OR_RETURN(const CharSet set, reader_.ReadEscape());
        character = set.ranges()[0].first;
        if (set.ranges().size() != 1 || set.ranges()[0].second != character) {
          return reader_.Error("a class within a text, expected it outside of the quotes");
        }
      } else {
        LK_ASSIGN_OR_RETURN(character, reader_.ReadChar());
      }
      AppendCodePoint(character, text);
    }
    return Text(std::move(text));
  }

  CharacterReader reader_;
  std::vector<Rule> rules_;
  absl::flat_hash_map<std::string, int32_t> numbers_;
  int32_t first_ = -1;
};

// Returns the expression with calls of small rules replaced by what they spell.
ExpressionPtr Inlined(const ExpressionPtr& e, const std::vector<ExpressionPtr>& small) {
  if (e->kind == Expression::Kind::kCall && small[e->rule] != nullptr) return small[e->rule];
  if (e->parts.empty()) return e;
  Expression copy = *e;
  for (ExpressionPtr& part : copy.parts) part = Inlined(part, small);
  return std::make_shared<const Expression>(std::move(copy));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileEbnf(std::string_view text, Budget& budget) {
  EbnfParser parser(text);
  LK_ASSIGN_OR_RETURN(const std::vector<EbnfParser::Rule> rules, parser.Parse());
  int32_t root = parser.first();
  std::vector<ExpressionPtr> small(rules.size());
  GrammarBuilder builder;
  for (size_t i = 0; i < rules.size(); ++i) {
    builder.AddRule(absl::StrCat("grammar: rule ", rules[i].name));
    if (rules[i].name == "root") root = static_cast<int32_t>(i);
    if (WeightOf(*rules[i].body) <= kSmallRule) small[i] = rules[i].body;
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    LK_RETURN_IF_ERROR(budget.Charge(1));
    LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(*Inlined(rules[i].body, small), budget));
    builder.Define(static_cast<int32_t>(i), std::move(dfa));
  }
  return builder.Finish(root, budget);
}

}  // namespace lowkey::grammar
