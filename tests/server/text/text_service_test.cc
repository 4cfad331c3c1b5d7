#include "server/text/text_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "server/request/limits.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextServiceTest : public ::testing::Test {
 protected:
  absl::StatusOr<RequestId> Generate(const GenerationRequest& request) {
    return service_.Generate(request, std::make_unique<RecordingListener>(heard_));
  }

  // The error of a request that must be refused with `code`.
  std::string Refusal(const GenerationRequest& request, absl::StatusCode code) {
    const absl::Status status = Generate(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(heard_->results.empty());
    EXPECT_TRUE(engine_.ids().empty());
    return std::string(status.message());
  }

  static GenerationRequest Text(const std::string& text) {
    GenerationRequest request;
    request.input = text;
    return request;
  }

  FakeEngine engine_;
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  TextService service_{engine_, TestTokenizer(), {"tales", {}}};
};

TEST_F(TextServiceTest, TokenizesTextWithBosAndWithoutEos) {
  const auto id = Generate(Text("Once"));
  ASSERT_TRUE(id.ok()) << id.status();
  const EngineRequest request = engine_.request(*id);
  EXPECT_EQ(request.prompt.front(), 1);
  EXPECT_NE(request.prompt.back(), 2);
  EXPECT_EQ(request.max_new_tokens, 128);
  EXPECT_THAT(request.stop_tokens, ElementsAre(2));
}

TEST_F(TextServiceTest, TokenIdsPassAsTheyAre) {
  GenerationRequest request;
  request.input = TokenList{5, 6, 7};
  request.ignore_eos = true;
  request.stop_tokens = {9};
  const auto id = Generate(request);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_THAT(engine_.request(*id).prompt, ElementsAre(5, 6, 7));
  EXPECT_THAT(engine_.request(*id).stop_tokens, ElementsAre(9));
}

TEST_F(TextServiceTest, AResponseFormatBecomesAConstraint) {
  GenerationRequest request = Text("Once");
  request.response_format = {.kind = ResponseFormat::Kind::kChoice, .choices = {"a"}};
  const auto id = Generate(request);
  ASSERT_TRUE(id.ok()) << id.status();
  const auto factory = engine_.request(*id).constraint;
  ASSERT_NE(factory, nullptr);
  EXPECT_EQ(factory->vocab_size(), engine_.config().vocab_size);
  const auto constraint = factory->Begin();
  EXPECT_FALSE(constraint->Advance(BytePieces("b")[0]).ok());
  EXPECT_TRUE(constraint->Advance(BytePieces("a")[0]).ok());
  EXPECT_TRUE(constraint->Advance(2).ok());
}

TEST_F(TextServiceTest, RefusesAResponseFormatByItsFault) {
  GenerationRequest request = Text("Once");
  request.response_format = {.kind = ResponseFormat::Kind::kJsonSchema, .text = "{\"not\":{}}"};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
              HasSubstr("response_format: json_schema: #/not"));
  request.response_format = {.kind = ResponseFormat::Kind::kJsonObject};
  request.ignore_eos = true;
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("ignore_eos: true"));
}

TEST_F(TextServiceTest, ConversationIsWrittenByTheTemplate) {
  TextService service(engine_, TestTokenizer(),
                      {"tales", {}, ChatTemplates("{{ bos_token }}{{ messages[0].content }}")});
  GenerationRequest request;
  request.input = Conversation{.messages = {{.role = "user", .content = "Once"}}};
  const auto id = service.Generate(request, std::make_unique<RecordingListener>(heard_));
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(engine_.request(*id).prompt, *TestTokenizer().Encode("Once", {.add_eos = false}));
  EXPECT_THAT(engine_.request(*id).stop_tokens, ElementsAre(2));
}

TEST_F(TextServiceTest, RefusesAConversationWithoutATemplate) {
  GenerationRequest request;
  request.input = Conversation{.messages = {{.role = "user", .content = "Once"}}};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kFailedPrecondition),
              HasSubstr("--chat-template"));
}

TEST_F(TextServiceTest, RefusesAConversationThatTheTemplateWritesNothingFor) {
  TextService service(engine_, TestTokenizer(), {"tales", {}, ChatTemplates("")});
  const auto prompt =
      service.Tokenize({.input = Conversation{.messages = {{.role = "user", .content = "Once"}}}});
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("the template wrote nothing"));
}

TEST_F(TextServiceTest, DefaultLengthIsWhatTheContextLeaves) {
  GenerationRequest request;
  request.input = TokenList(2000, 5);
  const auto id = Generate(request);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(engine_.request(*id).max_new_tokens, 48);
}

TEST_F(TextServiceTest, RefusesWhatDoesNotFitTheContext) {
  GenerationRequest request;
  request.input = TokenList(2000, 5);
  request.max_new_tokens = 49;
  EXPECT_THAT(Refusal(request, absl::StatusCode::kOutOfRange),
              HasSubstr("2000 + 49, expected at most the context of 2048"));
  request.max_new_tokens = 48;
  EXPECT_TRUE(Generate(request).ok());
}

TEST_F(TextServiceTest, RefusesAPromptThatLeavesNoRoom) {
  GenerationRequest request;
  request.input = TokenList(2048, 5);
  EXPECT_THAT(Refusal(request, absl::StatusCode::kOutOfRange), HasSubstr("2048 + 1"));
}

TEST_F(TextServiceTest, DrawsASeedWhenNoneIsGiven) {
  const auto first = Generate(Text("a"));
  const auto second = Generate(Text("a"));
  EXPECT_NE(engine_.request(*first).sampling.seed, engine_.request(*second).sampling.seed);
  GenerationRequest seeded = Text("a");
  seeded.sampling.seed = 12345678901234567890u;
  EXPECT_EQ(engine_.request(*Generate(seeded)).sampling.seed, 12345678901234567890u);
}

TEST_F(TextServiceTest, DefaultsFillWhatTheRequestLeavesOpen) {
  Defaults defaults;
  defaults.sampling.temperature = 0.5f;
  defaults.attention.mechanism = Mechanism::kAtp;
  defaults.attention.atp.rank = RankFixed{32};
  defaults.max_new_tokens = 7;
  TextService service(engine_, TestTokenizer(), {"tales", defaults});
  GenerationRequest request = Text("a");
  request.sampling.top_k = 3;
  request.attention.options["sinks"] = 8;
  const auto id = service.Generate(request, std::make_unique<RecordingListener>(heard_));
  ASSERT_TRUE(id.ok()) << id.status();
  const EngineRequest seen = engine_.request(*id);
  EXPECT_EQ(seen.sampling.temperature, 0.5f);
  EXPECT_EQ(seen.sampling.top_k, 3);
  EXPECT_EQ(seen.attention.mechanism, Mechanism::kAtp);
  EXPECT_EQ(std::get<RankFixed>(seen.attention.atp.rank).rank, 32);
  EXPECT_EQ(seen.attention.atp.sinks, 8);
  EXPECT_EQ(seen.max_new_tokens, 7);
}

TEST_F(TextServiceTest, RefusesEmptyInput) {
  EXPECT_THAT(Refusal(Text(""), absl::StatusCode::kInvalidArgument), HasSubstr("text: empty"));
  GenerationRequest request;
  request.input = TokenList();
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("token_ids"));
}

TEST_F(TextServiceTest, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(Refusal(Text("a\xff"), absl::StatusCode::kInvalidArgument), HasSubstr("text: "));
}

TEST_F(TextServiceTest, RefusesTokensOutsideTheVocabularyByPosition) {
  GenerationRequest request;
  request.input = TokenList{1, 4096};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
              HasSubstr("token_ids[1]: 4096, expected 0..4095"));
  request.input = TokenList{-1};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("token_ids[0]: -1"));
}

TEST_F(TextServiceTest, RefusesAnUnknownModel) {
  GenerationRequest request = Text("a");
  request.model = "other";
  EXPECT_THAT(Refusal(request, absl::StatusCode::kNotFound), HasSubstr("\"tales\""));
}

TEST_F(TextServiceTest, PriorityIsBounded) {
  GenerationRequest request = Text("a");
  for (const int32_t priority : {-101, 101, std::numeric_limits<int32_t>::min()}) {
    request.priority = priority;
    EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
                HasSubstr("expected -100..100"));
  }
  for (const int32_t priority : {-100, 0, 100}) {
    request.priority = priority;
    const auto id = Generate(request);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_EQ(engine_.request(*id).priority, priority);
  }
}

TEST_F(TextServiceTest, EngineLearnsTheTenant) {
  GenerationRequest request = Text("a");
  request.tenant = {.name = "ours", .weight = 2.5};
  const auto id = Generate(request);
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(engine_.request(*id).tenant, "ours");
  EXPECT_EQ(engine_.request(*id).tenant_weight, 2.5);
}

TEST_F(TextServiceTest, PromptsAndOutputsUseUpTheQuota) {
  GenerationRequest request = Text("a");
  request.input = TokenList(40, 3);
  request.tenant = {.name = "ours", .tokens_per_minute = 100};
  engine_.RefuseWith(absl::ResourceExhaustedError("queue: full"));
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(Refusal(request, absl::StatusCode::kResourceExhausted), "queue: full")
        << "what the engine refused used nothing";
  }
  engine_.Accept();
  const auto first = Generate(request), second = Generate(request);
  ASSERT_TRUE(first.ok() && second.ok());
  for (int i = 0; i < 40; ++i) engine_.Emit(*first, 3);
  engine_.Finish(*first, FinishReason::kLength);
  EXPECT_THAT(std::string(Generate(request).status().message()),
              HasSubstr("used its 100 tokens per minute"));
  request.tenant.name = "others";
  EXPECT_TRUE(Generate(request).ok());
}

TEST_F(TextServiceTest, RefusesStopTextsOverTheirBounds) {
  GenerationRequest request = Text("a");
  request.stop_texts.assign(17, "x");
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("stop: 17 texts"));
  request.stop_texts = {"ok", ""};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("stop[1] bytes: 0"));
  request.stop_texts = {std::string(257, 'x')};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("1..256"));
}

TEST_F(TextServiceTest, RefusesStopTokensOverTheirBounds) {
  GenerationRequest request = Text("a");
  request.stop_tokens.assign(65, 3);
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("stop_token_ids"));
  request.stop_tokens = {5000};
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
              HasSubstr("stop_token_ids[0]: 5000"));
}

TEST_F(TextServiceTest, RefusesMoreMarksThanItsBound) {
  GenerationRequest request = Text("a");
  request.prefix_marks.assign(17, 1);
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
              HasSubstr("prefix_marks: 17 lengths, expected at most 16"));
}

TEST_F(TextServiceTest, DraftsAreTheServersUnlessTheRequestSaysAndUnknownOnesAreRefused) {
  GenerationRequest request = Text("a");
  request.draft = "guess";
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument),
              HasSubstr("draft: \"guess\", expected off or lookup"));
  EXPECT_EQ(*ResolveDraft(std::nullopt, DraftMode::kLookup), DraftMode::kLookup);
  EXPECT_EQ(*ResolveDraft("off", DraftMode::kLookup), DraftMode::kOff);
  EXPECT_EQ(*ResolveDraft("lookup", DraftMode::kOff), DraftMode::kLookup);
}

TEST_F(TextServiceTest, RefusesCountsOutOfRange) {
  GenerationRequest request = Text("a");
  request.n = 9;
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("n: 9, expected"));
  request = Text("a");
  request.logprobs = 21;
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("logprobs: 21"));
  request = Text("a");
  request.prompt_logprobs = -1;
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("prompt_logprobs"));
  request = Text("a");
  request.max_new_tokens = 0;
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("max_new_tokens: 0"));
  request = Text("a");
  request.request_id = std::string(129, 'r');
  EXPECT_THAT(Refusal(request, absl::StatusCode::kInvalidArgument), HasSubstr("request_id"));
}

TEST_F(TextServiceTest, AllowsNoNewTokensWithPromptLogprobs) {
  GenerationRequest request = Text("a");
  request.max_new_tokens = 0;
  request.prompt_logprobs = 0;
  EXPECT_TRUE(Generate(request).ok());
}

TEST_F(TextServiceTest, AliasesNameTheModelToo) {
  TextService service(engine_, TestTokenizer(), {"tales", {}, {}, nullptr, {"gpt-4o"}});
  for (const char* name : {"", "tales", "gpt-4o"}) EXPECT_TRUE(service.CheckModel(name).ok());
  EXPECT_EQ(service.CheckModel("gpt-4").code(), absl::StatusCode::kNotFound);
}

TEST(CheckPromptLogprobsTest, CountsTokensAlternativesAndChoices) {
  EXPECT_TRUE(CheckPromptLogprobs(kMaxPromptLogprobs / 2, 1, 1).ok());
  EXPECT_FALSE(CheckPromptLogprobs(kMaxPromptLogprobs / 2 + 1, 1, 1).ok());
  EXPECT_TRUE(CheckPromptLogprobs(kMaxPromptLogprobs / 16, 1, 8).ok());
  const absl::Status status = CheckPromptLogprobs(10'000, 20, 8);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "prompt_logprobs: 10000 tokens with 20 alternatives in each of 8 choices are 1680000 "
            "log-probabilities, expected at most 131072");
}

TEST_F(TextServiceTest, RefusesADuplicateIdOnlyWhileItRuns) {
  GenerationRequest request = Text("a");
  request.request_id = "mine";
  const auto id = Generate(request);
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(Generate(request).status().code(), absl::StatusCode::kAlreadyExists);
  engine_.Finish(*id, FinishReason::kLength);
  EXPECT_TRUE(Generate(request).ok());
}

TEST_F(TextServiceTest, IdIsFreeAgainWhenTheEngineRefuses) {
  GenerationRequest request = Text("a");
  request.request_id = "mine";
  engine_.RefuseWith(absl::ResourceExhaustedError("queue: full"));
  EXPECT_EQ(Generate(request).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Generate(request).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(TextServiceTest, DeadlineReachesTheEngine) {
  GenerationRequest request = Text("a");
  request.deadline = absl::FromUnixSeconds(int64_t{1} << 40);
  EXPECT_EQ(engine_.request(*Generate(request)).deadline, absl::FromUnixSeconds(int64_t{1} << 40));
}

TEST_F(TextServiceTest, CancelEndsTheRequestOnce) {
  const auto id = Generate(Text("a"));
  service_.Cancel(*id);
  service_.Cancel(*id);
  ASSERT_EQ(heard_->results.size(), 1u);
  EXPECT_EQ(heard_->results[0].choices[0].reason, FinishReason::kCancelled);
}

}  // namespace
}  // namespace lowkey
