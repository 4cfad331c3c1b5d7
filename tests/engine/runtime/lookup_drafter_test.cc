#include "engine/runtime/lookup_drafter.h"

#include <algorithm>
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

TEST(DraftPace, RightDraftsGrowAndAWrongOneIsCutToItsRightPart) {
  DraftPace pace;
  int64_t last = pace.NextLength();
  EXPECT_EQ(last, 2);
  while (last < DraftPace::kLongestDraft) {
    pace.Note(last, last);
    const int64_t next = pace.NextLength();
    EXPECT_EQ(next, std::min(2 * last, DraftPace::kLongestDraft));
    last = next;
  }
  pace.Note(last, 5);
  EXPECT_EQ(pace.NextLength(), 6);
}

TEST(DraftPace, AShortDraftThatWasRightDoesNotShortenTheNext) {
  DraftPace pace;
  for (int i = 0; i < 4; ++i) pace.Note(pace.NextLength(), pace.NextLength());
  pace.Note(1, 1);  // no more rows could be taken back
  EXPECT_EQ(pace.NextLength(), DraftPace::kLongestDraft);
}

// Counts the drafted tokens of n_steps steps, of which `share` in 10 are right.
int64_t CountDrafted(DraftPace& pace, int n_steps, int share) {
  int64_t n_drafted = 0, n_right = 0;
  for (int i = 0; i < n_steps; ++i) {
    const int64_t n = pace.NextLength();
    if (n == 0) continue;
    n_drafted += n;
    const int64_t n_good = std::clamp<int64_t>(share * n_drafted / 10 - n_right, 0, n);
    n_right += n_good;
    pace.Note(n, n_good);
  }
  return n_drafted;
}

TEST(DraftPace, WhoseDraftsAreWrongRestsLongerAndLonger) {
  DraftPace pace;
  CountDrafted(pace, 200, 0);
  const int64_t n_drafted = CountDrafted(pace, 1000, 0);
  EXPECT_GT(n_drafted, 0) << "tries again";
  EXPECT_LT(n_drafted, 50) << "costs next to nothing";
}

TEST(DraftPace, WhoseDraftsBecomeRightDraftsAgain) {
  DraftPace pace;
  CountDrafted(pace, 200, 0);
  EXPECT_GT(CountDrafted(pace, 200, 10), 1000);
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
