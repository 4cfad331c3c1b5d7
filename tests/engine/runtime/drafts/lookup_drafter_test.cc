#include "engine/runtime/drafts/lookup_drafter.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> DraftOf(const std::vector<int32_t>& tokens, int64_t most) {
  std::vector<int32_t> draft;
  LookUp(tokens, most, draft);
  return draft;
}

TEST(LookUp, TextWithoutRepeatsHasNoDraft) {
  EXPECT_THAT(DraftOf({}, 4), IsEmpty());
  EXPECT_THAT(DraftOf({1}, 4), IsEmpty());
  EXPECT_THAT(DraftOf({1, 2, 3, 4, 5}, 4), IsEmpty());
  EXPECT_THAT(DraftOf({1, 2, 1}, 0), IsEmpty());
}

TEST(LookUp, TheLongestMatchCountsAndOfEqualsTheLatest) {
  // 7 came before as 1 2 7, as 2 7 and alone: the end reads 1 2 7.
  EXPECT_THAT(DraftOf({1, 2, 7, 10, 11, 3, 2, 7, 20, 21, 5, 7, 30, 31, 1, 2, 7}, 2),
              ElementsAre(10, 11));
  EXPECT_THAT(DraftOf({1, 7, 10, 1, 7, 20, 1, 7, 30, 9, 7}, 1), ElementsAre(30));
}

TEST(LookUp, NoMoreThanTheLongestMatchIsTold) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < 10; ++i) tokens.push_back(i);
  tokens.push_back(100);
  for (int i = 10 - static_cast<int>(LookupDrafter::kLongestMatch); i < 10; ++i) {
    tokens.push_back(i);
  }
  tokens.push_back(200);
  for (int i = 0; i < 10; ++i) tokens.push_back(i);
  EXPECT_THAT(DraftOf(tokens, 1), ElementsAre(200));
}

TEST(LookUp, ALoopIsDraftedPastTheKnownTokens) {
  EXPECT_THAT(DraftOf({5, 1, 2, 3, 1, 2, 3}, 8), ElementsAre(1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(DraftOf({4, 4}, 5), ElementsAre(4, 4, 4, 4, 4));
}

TEST(LookupDrafter, ACutDraftIsJudgedByWhatIsLeft) {
  LookupDrafter drafter;
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1};
  std::vector<int32_t> output = {2};
  EXPECT_THAT(drafter.Draft(prompt, output, 8), ElementsAre(3, 4));
  drafter.Cut(1);
  EXPECT_THAT(drafter.draft(), ElementsAre(3));
  output = {2, 3, 20, 1};  // it was right
  EXPECT_THAT(drafter.Draft(prompt, output, 8), ElementsAre(2, 3));
}

TEST(LookupDrafter, FollowsPromptAndOutputAndLearnsFromTheOutput) {
  LookupDrafter drafter;
  const std::vector<int32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1};
  std::vector<int32_t> output = {2};
  EXPECT_THAT(drafter.Draft(prompt, output, 8), ElementsAre(3, 4));
  EXPECT_THAT(drafter.draft(), ElementsAre(3, 4));
  output = {2, 3, 4, 5};  // both were right, and a token came besides
  EXPECT_THAT(drafter.Draft(prompt, output, 8), ElementsAre(6, 7, 8, 9));
  output = {2, 3, 4, 5, 6, 20};  // one was right
  EXPECT_THAT(drafter.Draft(prompt, output, 8), IsEmpty());
  output = {2, 3, 4, 5, 6, 20, 1};
  EXPECT_THAT(drafter.Draft(prompt, output, 8), ElementsAre(2, 3));
  EXPECT_THAT(drafter.Draft(prompt, output, 1), ElementsAre(2)) << "the step did not run";
}

}  // namespace
}  // namespace lowkey
