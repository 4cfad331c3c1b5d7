// A call that asks for too much is refused, and an answer that grows too long is an error.
#include <gmock/gmock.h>

#include <future>

#include "server/auth/token_table.h"
#include "tests/server/api/openai/openai_testing.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/completions";
constexpr size_t kTooManyTokens = 300'000;

class AnswerBoundsTest : public OpenAiTest {
 protected:
  std::future<ApiAnswer> Begin(json more) {
    json body = {{"model", "tales"}, {"prompt", "Once"}};
    body.update(more);
    return std::async(std::launch::async,
                      [this, body] { return Send("POST", kPath, body.dump()); });
  }

  // More of them than any answer holds.
  static std::vector<PromptLogprob> ManyPromptLogprobs() {
    std::vector<PromptLogprob> logprobs;
    for (size_t i = 1; i < kTooManyTokens; ++i) {
      logprobs.push_back({static_cast<int32_t>(i), {300, -0.1f}, {{300, -0.1f}}});
    }
    return logprobs;
  }
};

TEST_F(AnswerBoundsTest, LogprobsOfAllPromptsAreCountedBeforeAnyIsComputed) {
  const std::vector<int32_t> prompt(1900, 300);
  const json prompts = json::array({prompt, prompt, prompt, prompt});
  const ApiAnswer answer =
      Begin({{"prompt", prompts}, {"echo", true}, {"logprobs", 20}, {"max_tokens", 1}}).get();
  EXPECT_EQ(answer.code, 400);
  EXPECT_EQ(answer.Error()["param"], "prompt_logprobs");
  EXPECT_THAT(answer.body, HasSubstr("7600 tokens with 20 alternatives"));
  EXPECT_TRUE(engine_.ids().empty());
}

TEST_F(AnswerBoundsTest, TooLongAnAnswerIsAnError) {
  auto answer = Begin({{"prompt_logprobs", 1}});
  ASSERT_TRUE(engine_.WaitForRunning(1));
  engine_.EmitPromptLogprobs(engine_.ids()[0], ManyPromptLogprobs());
  Play(engine_.ids()[0], "x");
  const ApiAnswer refused = answer.get();
  EXPECT_EQ(refused.code, 400);
  EXPECT_EQ(refused.Error()["param"], "answer");
}

TEST_F(AnswerBoundsTest, TooLongAnEventOfAStreamIsAnError) {
  auto answer = Begin({{"prompt_logprobs", 1}, {"stream", true}});
  ASSERT_TRUE(engine_.WaitForRunning(1));
  engine_.EmitPromptLogprobs(engine_.ids()[0], ManyPromptLogprobs());
  Play(engine_.ids()[0], "x");
  const ApiAnswer refused = answer.get();
  EXPECT_EQ(refused.code, 400) << "nothing was sent before it";
  EXPECT_EQ(refused.Error()["param"], "answer");
}

TEST_F(AnswerBoundsTest, TokensThatNoAnswerHoldsAreNotComputed) {
  auto answer = Begin({{"logprobs", 20}});
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const RequestId id = engine_.ids()[0];
  SampledToken token = {300, -0.1f, {}};
  for (int32_t i = 0; i < 20; ++i) token.top_logprobs.push_back({300 + i, -0.1f});
  size_t n_emitted = 0;
  while (engine_.Emit(id, token) == SinkAnswer::kContinue && n_emitted < kTooManyTokens) {
    ++n_emitted;
  }
  EXPECT_LT(n_emitted, kTooManyTokens);
  engine_.Finish(id, FinishReason::kCancelled, absl::CancelledError("the reader is gone"));
  const ApiAnswer refused = answer.get();
  EXPECT_EQ(refused.code, 400);
  EXPECT_EQ(refused.Error()["param"], "answer");
}

class QuotaOfPromptsTest : public AnswerBoundsTest {
 protected:
  void SetUp() override {
    const std::string path = directory_.path() + "/tokens.json";
    WriteFileOrDie(path, R"({"tenants": [{"name": "ours", "max_live_requests": 2,
        "tokens_per_minute": 20, "tokens": [{"token": "token-of-ours-012345678"}]}]})");
    ServerOptions options = {.port = 0};
    options.credentials.tokens = *OpenTokens(path, [](const std::string&) {});
    Serve(options);
  }

  ApiAnswer Post(const json& prompts) {
    const json body = {{"model", "tales"}, {"prompt", prompts}};
    return Send("POST", kPath, body.dump(), "Authorization: Bearer token-of-ours-012345678\r\n");
  }

  TempDirectory directory_;
};

// No retry would ever find room for them.
TEST_F(QuotaOfPromptsTest, MorePromptsThanMayRunTogetherAreRefusedForGood) {
  const ApiAnswer answer = Post({"a", "b", "c"});
  EXPECT_EQ(answer.code, 400);
  EXPECT_EQ(answer.Error()["param"], "prompt");
  EXPECT_THAT(answer.body, HasSubstr("3 prompts, expected at most the 2 live requests"));
}

// The first prompt alone takes the tokens of a minute.
TEST_F(QuotaOfPromptsTest, CallThatBeganIsServedWhole) {
  const std::string prompt(60, 'a');
  auto answer = std::async(std::launch::async, [&] { return Post(json::array({prompt, prompt})); });
  ASSERT_TRUE(engine_.WaitForRunning(2));
  for (const RequestId id : engine_.ids()) Play(id, "x");
  EXPECT_EQ(answer.get().code, 200);
  EXPECT_EQ(Post("a").code, 429);
}

}  // namespace
}  // namespace lowkey
