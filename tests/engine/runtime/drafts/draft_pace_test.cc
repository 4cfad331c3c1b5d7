#include "engine/runtime/drafts/draft_pace.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

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

TEST(DraftPace, JudgesADraftByTheTokensThatCame) {
  DraftPace pace;
  pace.NoteDraft({}, {1, 2});
  pace.NoteDraft({1, 2}, {});
  EXPECT_EQ(pace.NextLength(), 2);
  pace.NoteDraft({1, 2}, {1, 2, 3});
  EXPECT_EQ(pace.NextLength(), 4);
  pace.NoteDraft({1, 2, 3, 4}, {1, 5});
  EXPECT_EQ(pace.NextLength(), 2);
}

}  // namespace
}  // namespace lowkey
