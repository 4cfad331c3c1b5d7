#ifndef LOWKEY_TESTS_ENGINE_SAMPLER_EVERY_SEVENTH_H_
#define LOWKEY_TESTS_ENGINE_SAMPLER_EVERY_SEVENTH_H_

#include <memory>
#include <optional>
#include <vector>

#include "engine/sampler/token_constraint.h"

namespace lowkey {

// Lets every seventh token through, beginning with one that depends on the tokens before. After
// `n_before_end` tokens only `end` may come; without an end none may.
class EverySeventh : public TokenConstraint {
 public:
  struct Rules {
    int32_t vocab_size = 96;
    int n_before_end = 1 << 30;
    std::optional<int32_t> end = std::nullopt;
  };

  explicit EverySeventh(const Rules& rules) : rules_(rules) {}

  static bool MayCome(const Rules& rules, const std::vector<int32_t>& before, int32_t token) {
    if (static_cast<int>(before.size()) >= rules.n_before_end) return token == rules.end;
    const int32_t last = before.empty() ? 0 : before.back();
    return (token + last + static_cast<int32_t>(before.size())) % 7 == 0;
  }

  absl::StatusOr<absl::Span<const uint64_t>> Mask() override {
    words_.assign((static_cast<size_t>(rules_.vocab_size) + 63) / 64, 0);
    bool is_any = false;
    for (int32_t t = 0; t < rules_.vocab_size; ++t) {
      if (!MayCome(rules_, before_, t)) continue;
      words_[t / 64] |= uint64_t{1} << (t % 64);
      is_any = true;
    }
    if (!is_any) return absl::FailedPreconditionError("no token may come");
    return absl::MakeConstSpan(words_);
  }
  absl::Status Advance(int32_t token) override {
    if (!MayCome(rules_, before_, token)) return absl::InvalidArgumentError("may not come");
    before_.push_back(token);
    return absl::OkStatus();
  }
  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<EverySeventh>(*this);
  }

 private:
  Rules rules_;
  std::vector<int32_t> before_;
  std::vector<uint64_t> words_;
};

class EverySeventhFactory : public TokenConstraintFactory {
 public:
  explicit EverySeventhFactory(const EverySeventh::Rules& rules) : rules_(rules) {}
  int32_t vocab_size() const override { return rules_.vocab_size; }
  std::unique_ptr<TokenConstraint> Begin() const override {
    return std::make_unique<EverySeventh>(rules_);
  }

 private:
  const EverySeventh::Rules rules_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_SAMPLER_EVERY_SEVENTH_H_
