#include "server/grammar/compile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/schema/json_text.h"
#include "server/grammar/syntax/regex.h"

namespace lowkey::grammar {
namespace {

absl::StatusOr<std::shared_ptr<const Grammar>> OfOneRule(const char* name,
                                                         const Expression& expression,
                                                         GrammarBuilder& builder, Budget& budget) {
  const int32_t root = builder.AddRule(name);
  LK_ASSIGN_OR_RETURN(Dfa dfa, ToDfa(expression, budget));
  builder.Define(root, std::move(dfa));
  return builder.Finish(root, budget);
}

}  // namespace

absl::Status CheckGrammarBytes(std::string_view form, size_t n_bytes) {
  if (n_bytes <= kMaxGrammarBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(form), ": ", n_bytes,
                                                 " bytes, expected at most ", kMaxGrammarBytes));
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonObject(Budget& budget) {
  GrammarBuilder builder;
  JsonRules rules(builder, budget);
  LK_ASSIGN_OR_RETURN(const int32_t object, rules.Object());
  // Models begin an answer with a space where a word would.
  return OfOneRule("json_object", *Sequence({Optional(Text(" ")), Call(object)}), builder, budget);
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileRegex(std::string_view text, Budget& budget) {
  LK_ASSIGN_OR_RETURN(const ExpressionPtr whole, ParseRegex(text, "regex", Match::kWhole));
  GrammarBuilder builder;
  return OfOneRule("regex", *whole, builder, budget);
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileChoice(const std::vector<std::string>& texts,
                                                             Budget& budget) {
  if (texts.empty()) {
    return absl::InvalidArgumentError("choice: no text, expected at least one");
  }
  std::vector<ExpressionPtr> choices;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string_view rest = texts[i];
    uint32_t character = 0;
    if (rest.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("choice[", i, "]: empty, expected 1 byte or more"));
    }
    while (TakeChar(rest, character)) {
    }
    if (!rest.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("choice[", i, "]: byte ",
                                                     texts[i].size() - rest.size(),
                                                     ": not UTF-8, expected UTF-8 text"));
    }
    choices.push_back(Text(texts[i]));
  }
  GrammarBuilder builder;
  return OfOneRule("choice", *Choice(std::move(choices)), builder, budget);
}

}  // namespace lowkey::grammar
