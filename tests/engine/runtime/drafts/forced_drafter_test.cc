#include "engine/runtime/drafts/forced_drafter.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/sampler/form.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A sequence under a form, and what was drafted for it.
struct Written {
  explicit Written(const Form::Rules& rules) : rules(rules), form(rules) {}

  absl::Span<const int32_t> Draft(int64_t most) { return drafter.Draft(form, output, most); }
  void Write(int32_t token) {
    ASSERT_TRUE(form.Advance(token).ok()) << token;
    output.push_back(token);
  }
  // Writes a spelling of the next token: the usual one, or another.
  void WriteText(int32_t spelling) {
    const auto at = static_cast<int>(output.size());
    Write((Form::Usual(rules, at) + spelling) % rules.vocab_size);
  }

  const Form::Rules rules;
  Form form;
  ForcedDrafter drafter;
  std::vector<int32_t> output;
};

TEST(ForcedDrafterTest, DraftsWhatIsForcedAndNothingElse) {
  Written w({.n_field = 2, .n_text = 3});
  EXPECT_THAT(w.Draft(8), IsEmpty());
  w.Write(0);
  EXPECT_THAT(w.Draft(8), IsEmpty());
  w.Write(3);
  EXPECT_THAT(w.Draft(8), ElementsAre(39, 52, 65));
  EXPECT_THAT(w.Draft(8), SizeIs(3)) << "the step did not run";
  EXPECT_THAT(w.Draft(2), ElementsAre(39, 52));
  EXPECT_THAT(w.Draft(0), IsEmpty());
  EXPECT_THAT(w.Draft(-1), IsEmpty());
  w.WriteText(0);
  EXPECT_THAT(w.Draft(8), ElementsAre(52, 65)) << "a draft may be cut";
}

TEST(ForcedDrafterTest, DraftsAreBounded) {
  Written w({.n_field = 1, .n_text = 90});
  w.Write(0);
  EXPECT_THAT(w.Draft(1000), SizeIs(ForcedDrafter::kLongestDraft));
}

TEST(ForcedDrafterTest, AModelThatSpellsOtherwiseIsLeftAlone) {
  Written w({.n_field = 1, .n_text = 1 << 20, .n_spellings = 2});
  w.Write(0);
  int64_t n_drafted = 0;
  for (int i = 0; i < 400; ++i) {
    n_drafted += static_cast<int64_t>(w.Draft(8).size());
    w.WriteText(1);
  }
  EXPECT_GT(n_drafted, 8) << "tries again";
  EXPECT_LT(n_drafted, 120);
  for (int i = 0; i < 200; ++i) {
    for (size_t n = w.Draft(8).size() + 1; n > 0; --n) w.WriteText(0);
  }
  EXPECT_THAT(w.Draft(8), SizeIs(8)) << "once the usual spelling came";
}

// Guesses a token that may not come.
class WrongForm : public Form {
 public:
  using Form::Form;
  std::vector<int32_t> ForcedTokens(int64_t most) override {
    std::vector<int32_t> tokens = Form::ForcedTokens(most);
    if (tokens.size() > 2) tokens[2] = (tokens[2] + 1) % 96;
    return tokens;
  }
};

TEST(ForcedDrafterTest, TokensThatMayNotComeAreNotDrafted) {
  WrongForm form({.n_field = 0, .n_text = 6});
  ForcedDrafter drafter;
  EXPECT_THAT(drafter.Draft(form, {}, 8), SizeIs(2));
}

TEST(CountAllowedTest, CountsUpToTheFirstTokenThatMayNotCome) {
  const Form form({.n_field = 1, .n_text = 3});
  EXPECT_EQ(CountAllowed(form, {}), 0);
  EXPECT_EQ(CountAllowed(form, {1}), 0);
  EXPECT_EQ(CountAllowed(form, {0, 26, 39, 52}), 4);
  EXPECT_EQ(CountAllowed(form, {0, 26, 40, 52}), 2);
}

}  // namespace
}  // namespace lowkey
