#include "engine/runtime/request_state.h"

#include <optional>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

EngineRequest RequestOfThree() {
  EngineRequest request;
  request.prompt = {1, 2, 3};
  request.n = 3;
  return request;
}

// The gaps between tokens teach forecasts: a choice that stops early must not stretch them.
TEST(RequestStateTest, TheMeanGapIsThatOfTheChoiceWithMostTokens) {
  const absl::Time start = absl::FromUnixSeconds(1'000'000);
  RequestState state(1, RequestOfThree(), nullptr, start);
  EXPECT_EQ(state.MeanGap(), std::nullopt);
  state.choices.resize(3);
  for (ChoiceState& c : state.choices) c.tokens = {5};
  state.first_token = state.last_token = start + absl::Seconds(1);
  EXPECT_EQ(state.MeanGap(), std::nullopt) << "no choice has two tokens";
  state.choices[0].tokens.assign(2, 5);
  state.choices[1].tokens.assign(101, 5);
  state.last_token = start + absl::Seconds(2);
  EXPECT_EQ(state.MeanGap(), absl::Milliseconds(10));
}

}  // namespace
}  // namespace lowkey
