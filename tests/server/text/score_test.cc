#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ScoreTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<RequestId>> Score(const ScoreRequest& request) {
    return service_.Score(request, [this](absl::StatusOr<ScoreResult> result) {
      results_.push_back(std::move(result));
    });
  }

  std::string Refusal(const ScoreRequest& request) {
    const absl::Status status = Score(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_TRUE(results_.empty());
    return std::string(status.message());
  }

  // Answers a request: position i gets log-probability -i, and is the most likely token where
  // `greedy` says.
  void Answer(RequestId id, bool greedy) {
    const TokenList prompt = engine_.request(id).prompt;
    std::vector<PromptLogprob> logprobs;
    const int32_t from = engine_.request(id).prompt_logprobs_from;
    for (size_t i = static_cast<size_t>(from); i < prompt.size(); ++i) {
      const TokenLogprob token{prompt[i], -static_cast<float>(i)};
      const TokenLogprob top{greedy ? prompt[i] : prompt[i] + 1, -0.5f};
      logprobs.push_back({static_cast<int32_t>(i), token, {top}});
    }
    engine_.EmitPromptLogprobs(id, std::move(logprobs));
    engine_.Finish(id, FinishReason::kLength);
  }

  std::vector<absl::StatusOr<ScoreResult>> results_;  // the engine's last words go there
  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}}};
};

TEST_F(ScoreTest, SumsTheContinuationsTokensAlone) {
  const auto ids =
      Score({.context = TokenList{1, 10, 11}, .continuations = {TokenList{20, 21}, TokenList{22}}});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_THAT(engine_.request((*ids)[0]).prompt, ElementsAre(1, 10, 11, 20, 21));
  EXPECT_EQ(engine_.request((*ids)[0]).max_new_tokens, 0);
  Answer((*ids)[0], true);
  EXPECT_TRUE(results_.empty());
  Answer((*ids)[1], false);
  ASSERT_EQ(results_.size(), 1u);
  const ScoreResult& result = *results_[0];
  EXPECT_DOUBLE_EQ(result.scores[0].logprob, -3 - 4);
  EXPECT_TRUE(result.scores[0].is_greedy);
  EXPECT_EQ(result.scores[0].tokens.size(), 2u);
  EXPECT_DOUBLE_EQ(result.scores[1].logprob, -3);
  EXPECT_FALSE(result.scores[1].is_greedy);
  EXPECT_EQ(result.best, 1u);
  EXPECT_EQ(result.n_prompt_tokens, 5 + 4);
}

// "th" may become another token before "e cat" than before " x": nothing but what all joined
// tokenizations share may count as the condition.
TEST_F(ScoreTest, TextContinuationsShareTheirCondition) {
  const auto ids = Score({.context = std::string("Once upon a tim"),
                          .continuations = {std::string("e there was"), std::string("ber wolf")}});
  ASSERT_TRUE(ids.ok()) << ids.status();
  const TokenList first = engine_.request((*ids)[0]).prompt;
  const TokenList second = engine_.request((*ids)[1]).prompt;
  EXPECT_EQ(*TestTokenizer().Decode(first), "Once upon a time there was");
  EXPECT_EQ(*TestTokenizer().Decode(second), "Once upon a timber wolf");
  Answer((*ids)[0], true);
  Answer((*ids)[1], true);
  ASSERT_EQ(results_.size(), 1u);
  const ScoreResult& result = *results_[0];
  const size_t boundary = first.size() - result.scores[0].tokens.size();
  EXPECT_EQ(boundary, second.size() - result.scores[1].tokens.size());
  EXPECT_TRUE(
      std::equal(first.begin(), first.begin() + static_cast<int64_t>(boundary), second.begin()));
}

TEST_F(ScoreTest, CountsAsOneRequestOfItsTenant) {
  ScoreRequest request{.context = TokenList{1, 10, 11},
                       .continuations = {TokenList{20, 21}, TokenList{22}}};
  request.tenant = {.name = "ours", .weight = 3, .max_live_requests = 1};
  const auto ids = Score(request);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(engine_.request((*ids)[1]).tenant, "ours");
  EXPECT_EQ(engine_.request((*ids)[1]).tenant_weight, 3);
  EXPECT_EQ(Score(request).status().code(), absl::StatusCode::kResourceExhausted);
  Answer((*ids)[0], true);
  EXPECT_EQ(Score(request).status().code(), absl::StatusCode::kResourceExhausted);
  Answer((*ids)[1], true);
  EXPECT_TRUE(Score(request).ok());
}

TEST_F(ScoreTest, PromptsUseUpTheQuota) {
  ScoreRequest request{.context = TokenList(30, 1),
                       .continuations = {TokenList{20}, TokenList{22}}};
  request.tenant = {.name = "ours", .tokens_per_minute = 60};
  EXPECT_TRUE(Score(request).ok());
  EXPECT_EQ(Score(request).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ScoreTest, RefusesMixedKinds) {
  EXPECT_THAT(Refusal({.context = std::string("a"), .continuations = {TokenList{3}}}),
              HasSubstr("continuations[0]"));
}

TEST_F(ScoreTest, RefusesNoneOrTooManyContinuations) {
  EXPECT_THAT(Refusal({.context = TokenList{1}}), HasSubstr("continuations: 0, expected 1..64"));
  ScoreRequest request{.context = TokenList{1}};
  request.continuations.assign(65, TokenList{3});
  EXPECT_THAT(Refusal(request), HasSubstr("continuations: 65"));
}

TEST_F(ScoreTest, RefusesAnEmptyContinuation) {
  EXPECT_THAT(Refusal({.context = std::string("a"), .continuations = {std::string()}}),
              HasSubstr("continuations[0]: empty"));
}

TEST_F(ScoreTest, OneErrorIsTheAnswerOfAll) {
  const auto ids = Score({.context = TokenList{1}, .continuations = {TokenList{3}, TokenList{4}}});
  ASSERT_TRUE(ids.ok());
  engine_.Finish((*ids)[0], FinishReason::kError, absl::InternalError("NaN"));
  Answer((*ids)[1], true);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kInternal);
}

TEST_F(ScoreTest, CancelEndsItWithOneAnswer) {
  const auto ids = Score({.context = TokenList{1}, .continuations = {TokenList{3}, TokenList{4}}});
  for (RequestId id : *ids) service_.Cancel(id);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].status().code(), absl::StatusCode::kCancelled);
}

// Refuses everything after the first request.
class OneSlotEngine : public FakeEngine {
 public:
  absl::StatusOr<RequestId> Submit(EngineRequest request, std::unique_ptr<Sink> sink) override {
    auto id = FakeEngine::Submit(std::move(request), std::move(sink));
    RefuseWith(absl::ResourceExhaustedError("queue: full"));
    return id;
  }
};

TEST_F(ScoreTest, AllOrNothingWhenTheQueueFillsUp) {
  OneSlotEngine engine;
  TextService service(engine, TestTokenizer(), {"tales", {}});
  bool called = false;
  const auto ids =
      service.Score({.context = TokenList{1}, .continuations = {TokenList{3}, TokenList{4}}},
                    [&called](absl::StatusOr<ScoreResult>) { called = true; });
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine.ids().empty());
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace lowkey
