#include "server/text/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace lowkey {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> match;
  bool operator==(const Outcome&) const = default;
};

// Feeds `text` cut at random places.
Outcome Feed(const std::vector<std::string>& stops, const std::string& text, std::mt19937& random) {
  StopMatcher matcher(stops);
  Outcome outcome;
  size_t at = 0;
  while (at < text.size()) {
    const size_t n = std::min<size_t>(text.size() - at, random() % 5);
    StopMatcher::Result result = matcher.Append(std::string_view(text).substr(at, n));
    at += n;
    outcome.text += result.text;
    outcome.match = result.match;
    if (result.match.has_value()) return outcome;
  }
  outcome.text += matcher.Flush();
  return outcome;
}

TEST(StopMatcherTest, PassesEverythingAtOnceWithoutStopTexts) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Append("abc").text, "abc");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, EmitsTextBeforeTheStopAndNothingOfIt) {
  StopMatcher matcher({"END"});
  const StopMatcher::Result result = matcher.Append("one END two");
  EXPECT_EQ(result.text, "one ");
  EXPECT_EQ(result.match, 0u);
}

TEST(StopMatcherTest, HoldsBackWhatMayBeginAStopAcrossPieces) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Append("one E").text, "one ");
  EXPECT_EQ(matcher.Append("N").text, "");
  const StopMatcher::Result result = matcher.Append("D!");
  EXPECT_EQ(result.text, "");
  EXPECT_EQ(result.match, 0u);
}

TEST(StopMatcherTest, ReleasesHeldTextWhenTheStopDoesNotCome) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Append("EN").text, "");
  EXPECT_EQ(matcher.Append("EM").text, "ENEM");
}

TEST(StopMatcherTest, FlushGivesTheUnfinishedBeginning) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Append("the EN").text, "the ");
  EXPECT_EQ(matcher.Flush(), "EN");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, FindsAStopThatOverlapsItsOwnFailedBeginning) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Append("aa").text, "");
  const StopMatcher::Result result = matcher.Append("aab");
  EXPECT_EQ(result.text, "aa");
  EXPECT_EQ(result.match, 0u);
}

TEST(StopMatcherTest, TakesTheStopThatEndsFirst) {
  StopMatcher matcher({"wxyz", "xy"});
  const StopMatcher::Result result = matcher.Append("vwxyz");
  EXPECT_EQ(result.text, "vw");
  EXPECT_EQ(result.match, 1u);
}

TEST(StopMatcherTest, TakesTheLongestOfStopsThatEndTogether) {
  StopMatcher matcher({"y", "xy"});
  const StopMatcher::Result result = matcher.Append("wxy");
  EXPECT_EQ(result.text, "w");
  EXPECT_EQ(result.match, 1u);
}

TEST(StopMatcherTest, NeverSplitsACharacterWhenHoldingBack) {
  StopMatcher matcher({"é!"});
  EXPECT_EQ(matcher.Append("caf").text, "caf");
  EXPECT_EQ(matcher.Append("é").text, "");
  EXPECT_EQ(matcher.Append("s").text, "és");
}

TEST(StopMatcherTest, GivesTheSameWhereverThePiecesAreCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> stops;
    for (int i = 0; i < 3; ++i) {
      std::string stop(1 + random() % 4, 'a');
      for (char& c : stop) c = static_cast<char>('a' + random() % 2);
      stops.push_back(stop);
    }
    std::string text(40, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    StopMatcher whole(stops);
    const StopMatcher::Result once = whole.Append(text);
    const Outcome expected{once.text + (once.match ? "" : whole.Flush()), once.match};
    EXPECT_EQ(Feed(stops, text, random), expected) << text;
  }
}

}  // namespace
}  // namespace lowkey
