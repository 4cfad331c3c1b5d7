#include "server/text/tool_call_grammar.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/grammar/automaton/expression.h"
#include "server/grammar/schema/json_text.h"
#include "server/grammar/schema/schema.h"
#include "server/grammar/vocabulary.h"

namespace lowkey {
namespace {

using grammar::Budget;
using grammar::Call;
using grammar::Choice;
using grammar::Dfa;
using grammar::ExpressionPtr;
using grammar::GrammarBuilder;
using grammar::JsonRules;
using grammar::Optional;
using grammar::Repeat;
using grammar::Sequence;
using grammar::Text;
using grammar::ToDfa;
using Reasoning = ToolCallsForm::Reasoning;

// The white space that may stand between a model's reasoning and its first call.
constexpr int kMaxSpacesAfterReasoning = 8;

// The text of a piece, spelled out or as the control piece.
ExpressionPtr Piece(const std::string& name) {
  return Choice({Text(name), Text(grammar::kControlByte + name)});
}

class Compiler {
 public:
  Compiler(const ToolCallsForm& form, Budget& budget)
      : form_(form), budget_(budget), rules_(builder_, budget) {}

  absl::StatusOr<std::shared_ptr<const grammar::Grammar>> Run() {
    const int32_t root = builder_.AddRule("tool calls");
    LK_ASSIGN_OR_RETURN(const int32_t calls, AddCalls());
    LK_ASSIGN_OR_RETURN(ExpressionPtr thoughts, Thoughts());
    LK_ASSIGN_OR_RETURN(ExpressionPtr begin, Marks(form_.begin));
    LK_ASSIGN_OR_RETURN(ExpressionPtr end, Marks(form_.end));
    // Models begin an answer with a space where a word would.
    LK_RETURN_IF_ERROR(Define(root, Sequence({std::move(thoughts), Optional(Text(" ")),
                                              std::move(begin), Call(calls), std::move(end)})));
    return Prefixed("tools", builder_.Finish(root, budget_));
  }

 private:
  absl::Status Define(int32_t rule, const ExpressionPtr& expression) {
    LK_ASSIGN_OR_RETURN(Dfa dfa, Prefixed("tools", ToDfa(*expression, budget_)));
    builder_.Define(rule, std::move(dfa));
    return absl::OkStatus();
  }

  absl::StatusOr<ExpressionPtr> Marks(const CallMarks& marks) {
    std::vector<ExpressionPtr> parts;
    for (const CallMark& mark : marks) {
      switch (mark.kind) {
        case CallMark::Kind::kText:
          parts.push_back(Text(mark.text));
          break;
        case CallMark::Kind::kPiece:
          parts.push_back(Piece(mark.text));
          break;
        case CallMark::Kind::kSpace:
          LK_ASSIGN_OR_RETURN(parts.emplace_back(), rules_.Gap());
      }
    }
    return Sequence(std::move(parts));
  }

  // Adds the rule of one call. The tools stand side by side, so that what their calls begin with in
  // common is read once.
  absl::StatusOr<int32_t> AddCall() {
    std::vector<ExpressionPtr> tools;
    for (const ToolCallsForm::Tool& tool : form_.tools) {
      LK_ASSIGN_OR_RETURN(
          const int32_t arguments,
          Prefixed(tool.field, AddObjectSchema(tool.schema, builder_, rules_, budget_)));
      LK_ASSIGN_OR_RETURN(ExpressionPtr begin, Marks(tool.begin));
      LK_ASSIGN_OR_RETURN(ExpressionPtr end, Marks(tool.end));
      tools.push_back(Sequence({std::move(begin), Call(arguments), std::move(end)}));
    }
    const int32_t rule = builder_.AddRule("tool call");
    LK_RETURN_IF_ERROR(Define(rule, Choice(std::move(tools))));
    return rule;
  }

  // Adds the rule of all calls, which are counted: a copy of the rule per call would be large.
  absl::StatusOr<int32_t> AddCalls() {
    LK_ASSIGN_OR_RETURN(const int32_t call, AddCall());
    if (form_.most_calls == 1) return call;
    LK_ASSIGN_OR_RETURN(ExpressionPtr separator, Marks(form_.separator));
    const int32_t next = builder_.AddRule("next tool call");
    LK_RETURN_IF_ERROR(Define(next, Sequence({std::move(separator), Call(call)})));
    Dfa dfa;
    dfa.most = form_.most_calls - 1;
    const int start = dfa.Add(), called = dfa.Add(/*accepts=*/true);
    dfa.states[start].calls.push_back({call, grammar::kPlain, called});
    dfa.states[called].calls.push_back({next, grammar::kCounts | grammar::kBelowMost, called});
    LK_RETURN_IF_ERROR(budget_.ChargeStates(static_cast<int64_t>(dfa.states.size())));
    const int32_t rule = builder_.AddRule("tool calls in a row");
    builder_.Define(rule, std::move(dfa));
    return rule;
  }

  // Returns the expression of the reasoning before the calls.
  absl::StatusOr<ExpressionPtr> Thoughts() {
    if (form_.reasoning == Reasoning::kNone) return Sequence({});
    const ExpressionPtr any = Repeat(grammar::Chars(grammar::CharSet::All()), 0, -1);
    LK_ASSIGN_OR_RETURN(const Dfa all, ToDfa(*any, budget_));
    LK_ASSIGN_OR_RETURN(const Dfa closed, ToDfa(*Sequence({any, Text("</think>"), any}), budget_));
    LK_ASSIGN_OR_RETURN(Dfa open, Combine(all, closed, grammar::Combination::kFirstOnly, budget_));
    const ExpressionPtr spaces =
        Repeat(grammar::Chars(grammar::CharSet::Of(" \n")), 0, kMaxSpacesAfterReasoning);
    ExpressionPtr rest = Sequence({Automaton(std::move(open)), Piece("</think>"), spaces});
    if (form_.reasoning == Reasoning::kBegun) return rest;
    return Optional(Sequence({Optional(Text(" ")), Piece("<think>"), std::move(rest)}));
  }

  const ToolCallsForm& form_;
  Budget& budget_;
  GrammarBuilder builder_;
  JsonRules rules_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const grammar::Grammar>> CompileToolCalls(const ToolCallsForm& form,
                                                                         Budget& budget) {
  return Compiler(form, budget).Run();
}

}  // namespace lowkey
