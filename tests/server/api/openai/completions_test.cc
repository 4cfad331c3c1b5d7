// POST /v1/completions over a real server.
#include <gmock/gmock.h>

#include <future>

#include "absl/strings/str_join.h"
#include "server/request/limits.h"
#include "tests/server/api/openai/openai_testing.h"
#include "tests/server/front/http_get.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/completions";

class CompletionsTest : public OpenAiTest {
 protected:
  static json Body(json more = json::object()) {
    json body = {{"model", "tales"}, {"prompt", "Once"}};
    body.update(more);
    return body;
  }
  // The answer to a request that the server refuses.
  ApiAnswer Refused(const json& more) { return Send("POST", kPath, Body(more).dump()); }

  std::string TextOf(const ApiAnswer& answer, size_t choice = 0) {
    std::string text;
    for (const std::string& event : answer.Events()) {
      const json chunk = json::parse(event, nullptr, false);
      if (!chunk.is_object() || !chunk.contains("choices")) continue;
      for (const json& entry : chunk["choices"]) {
        if (entry["index"] == choice) text += entry["text"].get<std::string>();
      }
    }
    return text;
  }
};

TEST_F(CompletionsTest, WholeAnswerHasOpenAiForm) {
  const ApiAnswer answer = Generate(kPath, Body({{"seed", 7}}), "hello");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.fields.at("content-type"), "application/json");
  const json body = answer.Json();
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["model"], "tales");
  EXPECT_EQ(body["id"], "cmpl-" + answer.fields.at("x-request-id"));
  EXPECT_EQ(body["choices"][0]["text"], "hello");
  EXPECT_EQ(body["choices"][0]["index"], 0);
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["completion_tokens"], 5);
  EXPECT_EQ(body["usage"]["total_tokens"], body["usage"]["prompt_tokens"].get<int>() + 5);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(body["lowkey"]["seed"], 7);
  EXPECT_EQ(body["lowkey"]["attention"]["mechanism"], "standard");
  EXPECT_TRUE(body["lowkey"]["timings"]["ttft_us"].is_number());
}

TEST_F(CompletionsTest, StreamIsTheWholeInPieces) {
  const ApiAnswer answer = Generate(kPath, Body({{"stream", true}}), "hello");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.fields.at("content-type"), HasSubstr("text/event-stream"));
  EXPECT_EQ(TextOf(answer), "hello");
  const std::vector<std::string> events = answer.Events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  const json last = json::parse(events[events.size() - 2]);
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_TRUE(last.contains("lowkey"));
  EXPECT_FALSE(last.contains("usage"));
}

TEST_F(CompletionsTest, UsageComesLastWhereAskedFor) {
  const ApiAnswer answer = Generate(
      kPath, Body({{"stream", true}, {"stream_options", {{"include_usage", true}}}}), "hello");
  const std::vector<std::string> events = answer.Events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_TRUE(json::parse(events[0])["usage"].is_null());
  const json usage = json::parse(events[events.size() - 2]);
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 5);
}

TEST_F(CompletionsTest, ChoicesOfSeveralPromptsAreNumberedThrough) {
  const json body = Body({{"prompt", {"Once", "Twice"}}, {"n", 2}});
  const json answer = Generate(kPath, body, "ab", 2).Json();
  ASSERT_EQ(answer["choices"].size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], "ab");
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 8);
  EXPECT_EQ(answer["lowkey"].size(), 2u);
}

TEST_F(CompletionsTest, StreamOfSeveralPromptsHasEveryChoice) {
  const json body = Body({{"prompt", {"Once", "Twice"}}, {"n", 2}, {"stream", true}});
  const ApiAnswer answer = Generate(kPath, body, "ab", 2);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(TextOf(answer, i), "ab");
  EXPECT_EQ(answer.Events().back(), "[DONE]");
}

TEST_F(CompletionsTest, FieldsReachTheEngine) {
  const json body = Body(
      {{"max_tokens", 9},
       {"temperature", 0.5},
       {"top_p", 0.9},
       {"top_k", 5},
       {"min_p", 0.1},
       {"repetition_penalty", 1.1},
       {"presence_penalty", 0.5},
       {"frequency_penalty", -0.5},
       {"logit_bias", {{"7", -3}}},
       {"seed", -1},
       {"priority", 3},
       {"ignore_eos", true},
       {"min_tokens", 4},
       {"stop_token_ids", {11}},
       {"user", "u"},
       {"best_of", 1},
       {"lowkey", {{"attention", {{"mechanism", "atp"}, {"rank", 64}}}, {"prefix_marks", {1}}}}});
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body.dump()); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const EngineRequest request = engine_.request(engine_.ids()[0]);
  EXPECT_EQ(request.max_new_tokens, 9);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.9f);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.seed, ~uint64_t{0});
  EXPECT_EQ(request.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(request.priority, 3);
  EXPECT_THAT(request.stop_tokens, ElementsAre(11));
  EXPECT_EQ(request.attention.mechanism, Mechanism::kAtp);
  EXPECT_THAT(request.prefix_marks, ElementsAre(1));
  Play(engine_.ids()[0], "x");
  EXPECT_EQ(answer.get().code, 200);
}

TEST_F(CompletionsTest, UnsetFieldsAreOpenAiDefaults) {
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, Body().dump()); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const EngineRequest request = engine_.request(engine_.ids()[0]);
  EXPECT_EQ(request.max_new_tokens, 16);
  EXPECT_FLOAT_EQ(request.sampling.temperature, 1.0f);
  Play(engine_.ids()[0], "x");
  EXPECT_EQ(answer.get().code, 200);
}

TEST_F(CompletionsTest, NullIsAbsent) {
  const json body = Body({{"max_tokens", nullptr},
                          {"stop", nullptr},
                          {"nobody_knows", nullptr},
                          {"stream_options", nullptr},
                          {"suffix", nullptr}});
  EXPECT_EQ(Generate(kPath, body, "x").code, 200);
}

TEST_F(CompletionsTest, ModelIdNamesTheMechanism) {
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath, Body({{"model", "tales@atp"}}).dump());
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  EXPECT_EQ(engine_.request(engine_.ids()[0]).attention.mechanism, Mechanism::kAtp);
  Play(engine_.ids()[0], "x");
  EXPECT_EQ(answer.get().Json()["model"], "tales@atp");
  const ApiAnswer two =
      Refused({{"model", "tales@atp"}, {"lowkey", {{"attention", {{"mechanism", "standard"}}}}}});
  EXPECT_EQ(two.code, 400);
  EXPECT_EQ(two.Error()["param"], "lowkey.attention.mechanism");
  EXPECT_EQ(Refused({{"model", "tales@nonsense"}}).code, 404);
}

TEST_F(CompletionsTest, LogprobsNameTokensAndAlternatives) {
  const json answer = Generate(kPath, Body({{"logprobs", 2}}), "ab").Json();
  const json& logprobs = answer["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], json({"a", "b"}));
  EXPECT_EQ(logprobs["token_logprobs"], json({-0.25, -0.25}));
  EXPECT_EQ(logprobs["top_logprobs"][0], json({{"a", -0.25}, {"b", -1.25}}));
  EXPECT_EQ(logprobs["text_offset"], json({0, 1}));
}

TEST_F(CompletionsTest, OffsetsCountACharacterOnceThatSeveralTokensSpell) {
  const json answer = Generate(kPath, Body({{"logprobs", 0}}), "a\u65e5b").Json();
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "a\u65e5b");
  EXPECT_EQ(choice["logprobs"]["tokens"].size(), 5u);
  EXPECT_EQ(choice["logprobs"]["text_offset"], json({0, 1, 2, 2, 2}));
}

// As lm-evaluation-harness asks, which compares the token's number with the largest of the map.
TEST_F(CompletionsTest, EchoHasThePromptsLogprobs) {
  const json body = Body({{"prompt", json::array({{1, 300, 301}})},
                          {"max_tokens", 1},
                          {"logprobs", 1},
                          {"echo", true}});
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body.dump()); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const RequestId id = engine_.ids()[0];
  EXPECT_EQ(engine_.request(id).prompt_logprobs, 1);
  engine_.EmitPromptLogprobs(id,
                             {{1, {300, -0.1f}, {{300, -0.1f}}}, {2, {301, -3.3f}, {{9, -0.7f}}}});
  Play(id, "x", FinishReason::kLength);
  const json choice = answer.get().Json()["choices"][0];
  const json& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["token_logprobs"].size(), 4u);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  const auto largest = [&logprobs](size_t i) {
    double most = -1e9;
    for (const json& value : logprobs["top_logprobs"][i])
      most = std::max(most, value.get<double>());
    return most;
  };
  EXPECT_EQ(logprobs["token_logprobs"][1].get<double>(), largest(1));
  EXPECT_LT(logprobs["token_logprobs"][2].get<double>(), largest(2));
  EXPECT_EQ(choice["finish_reason"], "length");
}

TEST_F(CompletionsTest, EchoRepeatsThePrompt) {
  EXPECT_EQ(Generate(kPath, Body({{"echo", true}}), "ab").Json()["choices"][0]["text"], "Onceab");
  EXPECT_EQ(TextOf(Generate(kPath, Body({{"echo", true}, {"stream", true}}), "ab")), "Onceab");
}

TEST_F(CompletionsTest, StopTextIsNamed) {
  const json answer = Generate(kPath, Body({{"stop", "l"}}), "hello").Json();
  EXPECT_EQ(answer["choices"][0]["text"], "he");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][0]["stop_reason"], "l");
}

struct Refusal {
  const char* name;
  json more;
  int code;
  const char* error_code;
  const char* param;
};

TEST_F(CompletionsTest, EveryFieldOfAnotherTypeIsNamed) {
  const json wrong = {{"a", {{"b", 1}}}};
  for (const char* field : {"model",
                            "prompt",
                            "max_tokens",
                            "temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "n",
                            "stop",
                            "logit_bias",
                            "seed",
                            "presence_penalty",
                            "frequency_penalty",
                            "repetition_penalty",
                            "stop_token_ids",
                            "ignore_eos",
                            "priority",
                            "request_id",
                            "logprobs",
                            "echo",
                            "prompt_logprobs",
                            "stream",
                            "lowkey",
                            "response_format"}) {
    const ApiAnswer answer = Refused({{field, wrong}});
    EXPECT_EQ(answer.code, 400) << field;
    const std::string param =
        answer.Error()["param"].is_string() ? answer.Error()["param"].get<std::string>() : "";
    EXPECT_EQ(param.rfind(field, 0), 0u) << field << ": " << answer.body;
  }
}

TEST_F(CompletionsTest, RefusalsSayWhat) {
  const Refusal refusals[] = {
      {"unknown", {{"tempreature", 1}}, 400, "unknown_parameter", "tempreature"},
      {"unknown in lowkey", {{"lowkey", {{"x", 1}}}}, 400, "unknown_parameter", "lowkey.x"},
      {"unknown attention option",
       {{"lowkey", {{"attention", {{"x", 1}}}}}},
       400,
       "unknown_parameter",
       "lowkey.attention.x"},
      {"suffix", {{"suffix", "x"}}, 400, "unsupported_parameter", "suffix"},
      {"tools", {{"tools", json::array()}}, 400, "unsupported_parameter", "tools"},
      {"best_of", {{"best_of", 2}}, 400, "unsupported_parameter", "best_of"},
      {"model", {{"model", "gpt"}}, 404, "model_not_found", "model"},
      {"range", {{"temperature", 3}}, 400, "invalid_value", "temperature"},
      {"n", {{"n", 9}}, 400, "invalid_value", "n"},
      {"length", {{"max_tokens", 0}}, 400, "invalid_value", "max_tokens"},
      {"context", {{"max_tokens", 100000}}, 400, "context_length_exceeded", "max_tokens"},
      {"options without stream",
       {{"stream_options", {{"include_usage", true}}}},
       400,
       "invalid_value",
       "stream_options"},
      {"empty", {{"prompt", ""}}, 400, "invalid_value", "prompt"},
      {"mixed", {{"prompt", {"a", json::array({1})}}}, 400, "invalid_value", "prompt[1]"},
      {"empty among others", {{"prompt", {"a", ""}}}, 400, "invalid_value", "prompt[1]"},
      {"no ids among others",
       {{"prompt", json::array({json::array({1}), json::array()})}},
       400,
       "invalid_value",
       "prompt[1]"},
      {"unknown id among others",
       {{"prompt", json::array({json::array({1}), json::array({1, 99999999})})}},
       400,
       "invalid_value",
       "prompt[1][1]"},
      {"empty stop", {{"stop", ""}}, 400, "invalid_value", "stop"},
      {"empty stop among others", {{"stop", {"a", ""}}}, 400, "invalid_value", "stop[1]"},
      {"long stop", {{"stop", std::string(257, 'x')}}, 400, "invalid_value", "stop"},
      {"logprobs", {{"logprobs", 21}}, 400, "invalid_value", "logprobs"},
      {"id", {{"request_id", "a\r\nb: c"}}, 400, "invalid_value", "request_id"},
      {"bias", {{"logit_bias", {{"x", 1}}}}, 400, "invalid_value", "logit_bias"},
  };
  for (const Refusal& refusal : refusals) {
    const ApiAnswer answer = Refused(refusal.more);
    EXPECT_EQ(answer.code, refusal.code) << refusal.name << answer.body;
    EXPECT_EQ(answer.Error()["code"], refusal.error_code) << refusal.name << answer.body;
    EXPECT_EQ(answer.Error()["param"], refusal.param) << refusal.name << answer.body;
    EXPECT_TRUE(answer.Error()["message"].is_string()) << refusal.name;
  }
}

TEST_F(CompletionsTest, NoPromptBeginsBesideOneThatIsTooLong) {
  const auto context = static_cast<size_t>(engine_.limits().context_tokens);
  for (const size_t n_bytes : {context + 1, kMaxTokenizeBytes + 1}) {
    const ApiAnswer answer = Refused({{"prompt", {"Once", std::string(n_bytes, 'x')}}});
    EXPECT_EQ(answer.code, 400) << answer.body;
    EXPECT_EQ(answer.Error()["code"], "context_length_exceeded") << answer.body;
    EXPECT_EQ(answer.Error()["param"], "prompt[1]") << answer.body;
    EXPECT_TRUE(engine_.ids().empty());
  }
}

TEST_F(CompletionsTest, WholeNumbersMayBeWrittenAsDecimals) {
  const json body = Body({{"max_tokens", 9.0}, {"n", 1.0}, {"seed", 7.0}});
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body.dump()); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const EngineRequest request = engine_.request(engine_.ids()[0]);
  EXPECT_EQ(request.max_new_tokens, 9);
  EXPECT_EQ(request.sampling.seed, 7u);
  Play(engine_.ids()[0], "x");
  EXPECT_EQ(answer.get().code, 200);
  for (const double n : {1.5, 3e9, -3e9, 1e300}) EXPECT_EQ(Refused({{"max_tokens", n}}).code, 400);
  EXPECT_EQ(Refused({{"seed", 1e30}}).code, 400);
}

TEST_F(CompletionsTest, TooManyChoicesAreRefused) {
  const std::vector<std::string> prompts(33, "x");
  EXPECT_EQ(Refused({{"prompt", prompts}, {"n", 2}}).code, 400);
  EXPECT_EQ(Refused({{"prompt", std::vector<std::string>(65, "x")}}).code, 400);
}

TEST_F(CompletionsTest, FullQueueIsTriedAgain) {
  engine_.RefuseWith(absl::ResourceExhaustedError("queue: 9 requests, expected at most 8"));
  for (const bool is_stream : {false, true}) {
    const ApiAnswer answer = Refused({{"stream", is_stream}});
    EXPECT_EQ(answer.code, 429);
    EXPECT_EQ(answer.Error()["code"], "queue_full");
    EXPECT_EQ(answer.fields.at("retry-after"), "1");
    EXPECT_EQ(answer.fields.count("retry-after-ms"), 1u);
  }
}

TEST_F(CompletionsTest, DrainingServerIsUnavailable) {
  server_->BeginDrain();
  const ApiAnswer answer = Refused(json::object());
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(answer.fields.count("retry-after"), 1u);
}

TEST_F(CompletionsTest, DrainLetsStreamsEnd) {
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath, Body({{"stream", true}}).dump());
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  auto shutdown = std::async(std::launch::async,
                             [&] { return server_->Shutdown(absl::Now() + absl::Seconds(20)); });
  Play(engine_.ids()[0], "hello");
  const ApiAnswer got = answer.get();
  EXPECT_EQ(TextOf(got), "hello");
  EXPECT_EQ(got.Events().back(), "[DONE]");
  EXPECT_TRUE(shutdown.get());
}

TEST_F(CompletionsTest, EveryChunkMayHaveTheUsage) {
  const json options = {{"continuous_usage_stats", true}};
  const ApiAnswer answer =
      Generate(kPath, Body({{"stream", true}, {"stream_options", options}}), "ab");
  const json first = json::parse(answer.Events()[0]);
  EXPECT_GT(first["usage"]["prompt_tokens"], 0);
  EXPECT_GE(first["usage"]["completion_tokens"], 1);
}

TEST_F(CompletionsTest, ErrorWithinAStreamIsAnEventWithoutDone) {
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath, Body({{"stream", true}}).dump());
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const RequestId id = engine_.ids()[0];
  engine_.Emit(id, BytePieces("a")[0]);
  engine_.Finish(id, FinishReason::kError, absl::InternalError("logits: NaN"));
  const ApiAnswer got = answer.get();
  EXPECT_EQ(got.code, 200);
  EXPECT_EQ(TextOf(got), "a");
  EXPECT_EQ(json::parse(got.Events().back())["error"]["code"], "internal_error");
}

TEST_F(CompletionsTest, EarlyErrorHasItsStatus) {
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath, Body({{"stream", true}}).dump());
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  engine_.Finish(engine_.ids()[0], FinishReason::kDeadline,
                 absl::DeadlineExceededError("deadline exceeded"));
  const ApiAnswer got = answer.get();
  EXPECT_EQ(got.code, 504);
  EXPECT_EQ(got.fields.at("x-should-retry"), "false");
}

TEST_F(CompletionsTest, DisconnectCancels) {
  for (const bool is_stream : {false, true}) {
    {
      RawConnection connection(server_->port());
      const std::string body = Body({{"stream", is_stream}, {"prompt", {"a", "b"}}}).dump();
      connection.Send(RequestHead("POST", kPath, "", body.size()) + body);
      ASSERT_TRUE(engine_.WaitForRunning(2));
    }
    EXPECT_TRUE(engine_.WaitForRunning(0)) << "stream " << is_stream;
  }
}

// The first token is not kept back until the next one comes.
TEST_F(CompletionsTest, TokensAreSentAsTheyCome) {
  RawConnection connection(server_->port());
  const std::string body = Body({{"stream", true}}).dump();
  connection.Send(RequestHead("POST", kPath, "", body.size()) + body);
  ASSERT_TRUE(engine_.WaitForRunning(1));
  engine_.Emit(engine_.ids()[0], BytePieces("a")[0]);
  std::string got;
  while (got.find("\"text\":\"a\"") == std::string::npos) {
    const std::string some = connection.ReadSome();
    ASSERT_FALSE(some.empty()) << got;
    got += some;
  }
  engine_.Finish(engine_.ids()[0], FinishReason::kStopToken);
  EXPECT_THAT(connection.ReadToEnd(), HasSubstr("[DONE]"));
}

}  // namespace
}  // namespace lowkey
