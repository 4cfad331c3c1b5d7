#ifndef LOWKEY_TESTS_ENGINE_SAMPLER_EVERY_SEVENTH_H_
#define LOWKEY_TESTS_ENGINE_SAMPLER_EVERY_SEVENTH_H_

#include <optional>
#include <vector>

#include "tests/engine/sampler/rule_constraint.h"

namespace lowkey {

struct EverySeventhRules {
  int32_t vocab_size = 96;
  int n_before_end = 1 << 30;
  std::optional<int32_t> end = std::nullopt;
};

// Lets every seventh token through, beginning with one that depends on the tokens before. After
// `n_before_end` tokens only `end` may come; without an end none may.
class EverySeventh : public RuleConstraint<EverySeventh, EverySeventhRules> {
 public:
  using Rules = EverySeventhRules;
  using RuleConstraint::RuleConstraint;

  static bool MayCome(const Rules& rules, const std::vector<int32_t>& before, int32_t token) {
    if (static_cast<int>(before.size()) >= rules.n_before_end) return token == rules.end;
    const int32_t last = before.empty() ? 0 : before.back();
    return (token + last + static_cast<int32_t>(before.size())) % 7 == 0;
  }
};

using EverySeventhFactory = RuleConstraintFactory<EverySeventh, EverySeventhRules>;

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_SAMPLER_EVERY_SEVENTH_H_
