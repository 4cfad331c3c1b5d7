#include "engine/scheduler/forecast.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

const StepCost kCost{{{1, 0.011}, {1e6, 1000.010}}};
constexpr ForecastLimits kLimits{4, 1000, 100, 50};

double Wait(const Forecast& f) { return absl::ToDoubleSeconds(f.wait); }
double FirstToken(const Forecast& f) { return absl::ToDoubleSeconds(f.first_token); }
double End(const Forecast& f) { return absl::ToDoubleSeconds(f.end); }

constexpr absl::Time kNow = absl::FromUnixSeconds(1'000'000);

// A meter of a machine whose steps follow one another.
struct Meter {
  void Note(int64_t n_rows, absl::Duration took) { meter.Note(n_rows, took, kNow); }
  // Returns the seconds that a step takes.
  double Of(int64_t n_rows) const { return meter.cost()->SecondsOf(static_cast<double>(n_rows)); }

  StepCostMeter meter;
};

TEST(StepCostMeterTest, SaysNothingBeforeItHasSeenSteps) {
  StepCostMeter meter;
  for (int i = 0; i < 7; ++i) {
    meter.Note(10, absl::Milliseconds(20), kNow);
    EXPECT_FALSE(meter.cost().has_value());
  }
  meter.Note(10, absl::Milliseconds(20), kNow);
  EXPECT_TRUE(meter.cost().has_value());
}

TEST(StepCostMeterTest, FindsTimesInNoise) {
  Meter meter;
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  for (int i = 0; i < 500; ++i) {
    const int64_t n = 1 + static_cast<int64_t>(rng() % 200);
    meter.Note(n, absl::Seconds((0.010 + 0.001 * static_cast<double>(n)) * noise(rng)));
  }
  for (const int n : {2, 10, 50, 100, 150}) EXPECT_NEAR(meter.Of(n) / (0.010 + 0.001 * n), 1, 0.1);
}

TEST(StepCostMeterTest, StepsOfOneSizeGiveTheirMean) {
  Meter meter;
  for (int i = 0; i < 20; ++i) meter.Note(16, absl::Milliseconds(32));
  EXPECT_NEAR(meter.Of(16), 0.032, 1e-6);
}

// The first step of all reads the weights from a file.
TEST(StepCostMeterTest, AFewShortRequestsDoNotMakeALongOneLookSlow) {
  Meter meter;
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> noise(0.9, 1.2);
  for (int request = 0; request < 3; ++request) {
    meter.Note(3, absl::Milliseconds((request == 0 ? 50 : 24) * noise(rng)));
    for (int i = 0; i < 9; ++i) meter.Note(1, absl::Milliseconds(22 * noise(rng)));
    EXPECT_LT(meter.Of(500), 1.3);
    EXPECT_NEAR(meter.Of(1), 0.023, 0.003);
  }
  for (int i = 0; i < 4; ++i) meter.Note(500, absl::Seconds(1.02 * noise(rng)));
  EXPECT_NEAR(meter.Of(500), 1.07, 0.15) << "long steps show it";
}

TEST(StepCostMeterTest, LongPromptsDoNotMakeTokensLookSlow) {
  Meter scores, mixed;
  for (int i = 0; i < 30; ++i) scores.Note(512, absl::Milliseconds(138));
  EXPECT_LT(scores.Of(1), 0.001);
  EXPECT_NEAR(scores.Of(1000), 0.138, 1e-6) << "no more than was seen";
  for (int i = 0; i < 8; ++i) scores.Note(508, absl::Milliseconds(170));  // at a prompt's end
  EXPECT_LT(scores.Of(1), 0.001);
  for (int i = 0; i < 20; ++i) scores.Note(1, absl::Milliseconds(22));
  EXPECT_NEAR(scores.Of(1), 0.022, 0.004) << "a model whose weights take that long to read";
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> noise(0.8, 1.3);
  for (int i = 0; i < 200; ++i) mixed.Note(1, absl::Microseconds(600 * noise(rng)));
  for (int i = 0; i < 48; ++i) {
    mixed.Note(512, absl::Milliseconds(138 * noise(rng)));
    EXPECT_LT(mixed.Of(1), 0.001);
  }
}

TEST(StepCostMeterTest, OneSizeSaysNothingOfOthersAfterAWhile) {
  StepCostMeter meter;
  for (int i = 0; i < 20; ++i) meter.Note(100, absl::Milliseconds(10), kNow);
  for (int i = 0; i < 20; ++i) meter.Note(8, absl::Milliseconds(100), kNow + absl::Hours(1));
  EXPECT_NEAR(meter.cost()->SecondsOf(8), 0.1, 1e-6) << "the texts are longer now";
  EXPECT_EQ(meter.noted(), kNow + absl::Hours(1));
}

TEST(ForecastTest, TimesHalveWhileNothingIsComputed) {
  const Forecast forecast{absl::Seconds(1), absl::Seconds(10), absl::Seconds(2), absl::Seconds(20)};
  EXPECT_EQ(AfterIdling(forecast, absl::ZeroDuration()).end, absl::Seconds(20));
  EXPECT_EQ(AfterIdling(forecast, absl::Minutes(5)).end, absl::Seconds(10));
  EXPECT_EQ(AfterIdling(forecast, absl::Minutes(10)).wait, absl::Seconds(0.25));
}

TEST(StepCostMeterTest, FollowsAMachineThatBecomesSlower) {
  Meter meter;
  for (int i = 0; i < 1000; ++i) meter.Note(1 + i % 50, absl::Milliseconds(1 + i % 50));
  for (int i = 0; i < 400; ++i) meter.Note(1 + i % 50, absl::Milliseconds(3 * (1 + i % 50)));
  for (const int n : {5, 20, 40}) EXPECT_NEAR(meter.Of(n) / (0.003 * n), 1, 0.1);
}

TEST(StepCostMeterTest, OneStandstillIsNoSlowMachine) {
  Meter meter;
  for (int i = 0; i < 200; ++i) meter.Note(1 + i % 50, absl::Milliseconds(10 + i % 50));
  meter.Note(20, absl::Seconds(60));
  for (const int n : {1, 20, 50}) EXPECT_LT(meter.Of(n) / (0.010 + 0.001 * n), 1.4);
}

TEST(StepCostMeterTest, AClockThatGoesBackTeachesNothing) {
  Meter meter;
  for (int i = 0; i < 20; ++i) meter.Note(16, absl::Milliseconds(32));
  meter.Note(16, -absl::Hours(1));
  meter.Note(16, absl::ZeroDuration());
  EXPECT_NEAR(meter.Of(16), 0.032, 1e-6);
}

TEST(ForecastTest, CachedRowsShortenThePromptAlone) {
  Forecast forecast{absl::Seconds(1), absl::Seconds(10), absl::Seconds(2), absl::Seconds(20)};
  forecast.cached_first_token = absl::Seconds(2);
  const Forecast got = WithCachedShare(forecast, 0.75);
  EXPECT_EQ(got.wait, absl::Seconds(1));
  EXPECT_EQ(got.first_token, absl::Seconds(4));
  EXPECT_EQ(got.next_token, absl::Seconds(2));
  EXPECT_EQ(got.end, absl::Seconds(14));
}

TEST(ForecastErrorsTest, CorrectsToTheWorstOfThirty) {
  const Forecast forecast{absl::Seconds(1), absl::Seconds(2), absl::Milliseconds(10),
                          absl::Seconds(3)};
  ForecastErrors errors;
  EXPECT_EQ(errors.Correct(forecast, kNow).end, absl::Seconds(3));
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> ratio(1, 2);
  double worst = 0, n_above = 0;
  for (int i = 0; i < 4000; ++i) {
    const absl::Duration actual = forecast.first_token * ratio(rng);
    if (i >= 2000) n_above += actual > errors.Correct(forecast, kNow).first_token ? 1 : 0;
    errors.NoteFirstToken(forecast, actual, kNow);
    errors.NoteNextToken(forecast, absl::Milliseconds(15), kNow);
    worst = std::max(worst, absl::FDivDuration(errors.Correct(forecast, kNow).wait, forecast.wait));
  }
  EXPECT_NEAR(n_above / 2000, 0.03, 0.01);
  EXPECT_LE(worst, 2.1);
  const Forecast corrected = errors.Correct(forecast, kNow);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(corrected.next_token), 15, 1);
  EXPECT_NEAR(absl::ToDoubleSeconds(corrected.end - corrected.first_token), 1.5, 0.1);
}

TEST(ForecastErrorsTest, TimesThatAreNoiseTeachNothing) {
  const Forecast forecast{absl::ZeroDuration(), absl::Microseconds(3), absl::Microseconds(1),
                          absl::Microseconds(9)};
  ForecastErrors errors;
  for (int i = 0; i < 100; ++i) errors.NoteFirstToken(forecast, absl::Seconds(9), kNow);
  EXPECT_EQ(errors.Correct(forecast, kNow).end, absl::Microseconds(9));
}

// A bad hour must not refuse requests for ever: those that are refused teach nothing.
TEST(ForecastErrorsTest, WhatWasLearnedIsForgotten) {
  const Forecast forecast{absl::Seconds(1), absl::Seconds(1), absl::Seconds(1), absl::Seconds(2)};
  ForecastErrors errors;
  for (int i = 0; i < 200; ++i) errors.NoteNextToken(forecast, absl::Minutes(1), kNow);
  const auto next_token_s = [&](absl::Time now) {
    return absl::ToDoubleSeconds(errors.Correct(forecast, now).next_token);
  };
  EXPECT_NEAR(next_token_s(kNow), 10, 0.1);
  EXPECT_NEAR(next_token_s(kNow + absl::Minutes(5)), 5.5, 0.1);
  EXPECT_NEAR(next_token_s(kNow + absl::Hours(1)), 1, 0.01);
  EXPECT_NEAR(next_token_s(kNow - absl::Hours(1)), 10, 0.1) << "a clock that goes back";
}

TEST(ForecastTest, AnIdleServerBeginsAtOnce) {
  const Forecast f = ForecastWork({}, {}, {30, 20, 1, 10}, kLimits, kCost);
  EXPECT_EQ(Wait(f), 0);
  EXPECT_NEAR(FirstToken(f), 0.010 + 30 * 0.001, 1e-9);
  EXPECT_NEAR(End(f), 0.040 + 20 * 0.011, 1e-9);
}

TEST(ForecastTest, PromptsAheadAreComputedFirst) {
  const Forecast f = ForecastWork({{200, 5, 1, 10}}, {}, {30, 20, 1, 10}, kLimits, kCost);
  EXPECT_NEAR(Wait(f), 2 * 0.010 + 200 * 0.001, 1e-9);
}

TEST(ForecastTest, AFullRunningSetLetsTheNextInWhenItsFirstEnds) {
  const std::vector<RemainingWork> running = {
      {0, 100, 1, 10}, {0, 40, 1, 10}, {0, 90, 1, 10}, {0, 80, 1, 10}};
  EXPECT_NEAR(Wait(ForecastWork(running, {}, {1, 1, 1, 10}, kLimits, kCost)), 40 * 0.014, 1e-9);
  // One more ahead: it takes that place, and the next is free 40 steps later.
  const Forecast second = ForecastWork(running, {{0, 500, 1, 10}}, {1, 1, 1, 10}, kLimits, kCost);
  EXPECT_NEAR(Wait(second), 80 * 0.014, 1e-9);
}

TEST(ForecastTest, MemoryIsWaitedForToo) {
  const Forecast f =
      ForecastWork({{0, 50, 1, 600}, {0, 70, 1, 300}}, {}, {1, 1, 1, 500}, kLimits, kCost);
  EXPECT_NEAR(Wait(f), 50 * 0.012, 1e-9);
}

TEST(ForecastTest, WhatFitsNowhereIsNotWaitedForForEver) {
  const Forecast f = ForecastWork({{0, 50, 1, 10}}, {}, {1, 1, 9, 5000}, kLimits, kCost);
  EXPECT_NEAR(Wait(f), 50 * 0.011, 1e-9);
}

TEST(ForecastTest, DecodeRowsGoOnBesidePrompts) {
  // 96 prompt rows beside 2 streams: 48 a step, two steps in which the streams advance too.
  const Forecast f = ForecastWork({{0, 2, 1, 10}, {0, 30, 1, 10}, {96, 30, 1, 10}, {0, 9, 1, 10}},
                                  {}, {1, 1, 1, 10}, kLimits, kCost);
  // 3 streams wait: 47 rows a step, 3 steps; then the first has ended.
  EXPECT_NEAR(Wait(f), 3 * 0.010 + (96 + 9) * 0.001, 1e-9);
}

}  // namespace
}  // namespace lowkey
