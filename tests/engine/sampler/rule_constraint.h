#ifndef LOWKEY_TESTS_ENGINE_SAMPLER_RULE_CONSTRAINT_H_
#define LOWKEY_TESTS_ENGINE_SAMPLER_RULE_CONSTRAINT_H_

#include <memory>
#include <vector>

#include "engine/sampler/token_constraint.h"

namespace lowkey {

// A constraint whose subclass T says by T::MayCome(rules, tokens before, token) what may come. Its
// Rules have the vocabulary's size.
template <typename T, typename Rules>
class RuleConstraint : public TokenConstraint {
 public:
  explicit RuleConstraint(const Rules& rules) : rules_(rules) {}

  absl::StatusOr<absl::Span<const uint64_t>> Mask() override {
    words_.assign((static_cast<size_t>(rules_.vocab_size) + 63) / 64, 0);
    bool is_any = false;
    for (int32_t t = 0; t < rules_.vocab_size; ++t) {
      if (!T::MayCome(rules_, before_, t)) continue;
      words_[t / 64] |= uint64_t{1} << (t % 64);
      is_any = true;
    }
    if (!is_any) return absl::FailedPreconditionError("no token may come");
    return absl::MakeConstSpan(words_);
  }
  absl::Status Advance(int32_t token) override {
    if (!T::MayCome(rules_, before_, token)) return absl::InvalidArgumentError("may not come");
    before_.push_back(token);
    return absl::OkStatus();
  }
  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<T>(static_cast<const T&>(*this));
  }

 protected:
  const Rules& rules() const { return rules_; }
  const std::vector<int32_t>& before() const { return before_; }

 private:
  Rules rules_;
  std::vector<int32_t> before_;
  std::vector<uint64_t> words_;
};

template <typename T, typename Rules>
class RuleConstraintFactory : public TokenConstraintFactory {
 public:
  explicit RuleConstraintFactory(const Rules& rules) : rules_(rules) {}
  int32_t vocab_size() const override { return rules_.vocab_size; }
  std::unique_ptr<TokenConstraint> Begin() const override { return std::make_unique<T>(rules_); }

 private:
  const Rules rules_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_SAMPLER_RULE_CONSTRAINT_H_
