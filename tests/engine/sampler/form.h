#ifndef LOWKEY_TESTS_ENGINE_SAMPLER_FORM_H_
#define LOWKEY_TESTS_ENGINE_SAMPLER_FORM_H_

#include <functional>
#include <optional>
#include <vector>

#include "tests/engine/sampler/rule_constraint.h"

namespace lowkey {

struct FormRules {
  int32_t vocab_size = 96;
  int n_field = 3, n_text = 5;  // tokens of a field and of the text behind it
  int n_spellings = 1;
  int n_before_end = 1 << 30;  // then only `end` may come, or none
  std::optional<int32_t> end = std::nullopt;
  std::function<void()> on_mask = {};  // is called for each mask that is computed
};

// A form to fill in: fields, in which every third token may come, alternate with text that the form
// prescribes. Prescribed tokens have a number of spellings, the first of which is the usual one.
class Form : public RuleConstraint<Form, FormRules> {
 public:
  using Rules = FormRules;
  using RuleConstraint::RuleConstraint;

  static bool IsText(const Rules& rules, int at) {
    return at < rules.n_before_end && at % (rules.n_field + rules.n_text) >= rules.n_field;
  }
  static int32_t Usual(const Rules& rules, int at) {
    return 8 + (at * 13 + 5) % (rules.vocab_size - 8);
  }
  static bool MayCome(const Rules& rules, const std::vector<int32_t>& before, int32_t token) {
    const int at = static_cast<int>(before.size());
    if (token < 0 || token >= rules.vocab_size) return false;
    if (at >= rules.n_before_end) return token == rules.end;
    if (token == rules.end) return false;
    if (IsText(rules, at)) {
      const int32_t spelling = (token - Usual(rules, at) + rules.vocab_size) % rules.vocab_size;
      return spelling < rules.n_spellings;
    }
    return (token + (before.empty() ? 0 : before.back())) % 3 == 0;
  }

  absl::StatusOr<absl::Span<const uint64_t>> Mask() override {
    if (rules().on_mask) rules().on_mask();
    return RuleConstraint::Mask();
  }
  std::vector<int32_t> ForcedTokens(int64_t most) override {
    std::vector<int32_t> tokens;
    for (int at = static_cast<int>(before().size());
         static_cast<int64_t>(tokens.size()) < most && IsText(rules(), at); ++at) {
      tokens.push_back(Usual(rules(), at));
    }
    return tokens;
  }
};

using FormFactory = RuleConstraintFactory<Form, FormRules>;

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_SAMPLER_FORM_H_
