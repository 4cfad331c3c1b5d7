// Every RPC of the real server over a real socket.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/running_server.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

RunningServer& Server() {
  static auto* server = new RunningServer();
  return *server;
}

v1::GenerateRequest Request(const std::string& text, int32_t max_new_tokens) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.set_max_new_tokens(max_new_tokens);
  request.set_ignore_eos(true);
  return request;
}

v1::GenerateResponse Generate(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = Server().generation->Generate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

grpc::Status Refusal(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  return Server().generation->Generate(&context, request, &response);
}

std::vector<int32_t> Tokens(const v1::ChoiceDelta& choice) {
  std::vector<int32_t> tokens;
  for (const v1::Token& token : choice.tokens()) tokens.push_back(token.token_id());
  return tokens;
}

TEST(ServingTest, TokenizeAndDetokenizeAreInverse) {
  grpc::ClientContext context, back;
  v1::TokenizeRequest request;
  request.set_text("Once upon a time, café €5\n");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(Server().generation->Tokenize(&context, request, &tokens).ok());
  EXPECT_EQ(tokens.token_ids(0), 1);
  EXPECT_EQ(tokens.pieces_size(), tokens.token_ids_size());
  v1::DetokenizeRequest ids;
  *ids.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  ASSERT_TRUE(Server().generation->Detokenize(&back, ids, &text).ok());
  EXPECT_EQ(text.text(), request.text());
}

TEST(ServingTest, TokenizeLeavesBosOutOnRequest) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text("a");
  request.set_add_bos(false);
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(Server().generation->Tokenize(&context, request, &tokens).ok());
  EXPECT_NE(tokens.token_ids(0), 1);
}

TEST(ServingTest, StreamAndUnaryAndDetokenizeAgree) {
  v1::GenerateRequest request = Request("Once upon a time", 40);
  const v1::GenerateResponse unary = Generate(request);
  grpc::ClientContext context;
  auto reader = Server().generation->GenerateStream(&context, request);
  v1::GenerateEvent event;
  v1::ChoiceDelta whole;
  int n_final = 0;
  while (reader->Read(&event)) {
    whole.set_text(whole.text() + event.delta().text());
    whole.mutable_tokens()->MergeFrom(event.delta().tokens());
    n_final += event.has_final();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(n_final, 1);
  EXPECT_EQ(whole.text(), unary.choices(0).text());
  EXPECT_THAT(Tokens(whole), ElementsAreArray(Tokens(unary.choices(0))));
  EXPECT_EQ(unary.final().usage().generated_tokens(), 40);
  EXPECT_EQ(unary.final().choices(0).reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_GT(unary.final().timings().ttft_us(), 0);
}

TEST(ServingTest, DraftsGiveTheSameTokensAndAreReported) {
  v1::GenerateRequest request =
      Request("The cat sat. The dog sat. The cat sat. The dog sat. The cat sat. The", 60);
  request.set_logprobs(0);
  const v1::GenerateResponse plain = Generate(request);
  request.set_draft("lookup");
  const v1::GenerateResponse drafted = Generate(request);
  EXPECT_EQ(drafted.choices(0).SerializeAsString(), plain.choices(0).SerializeAsString());
  EXPECT_EQ(plain.final().usage().drafted_tokens(), 0);
  EXPECT_GT(drafted.final().usage().drafted_tokens(), 0);
  EXPECT_GE(drafted.final().usage().drafted_tokens(), drafted.final().usage().accepted_tokens());
  request.set_draft("guess");
  EXPECT_EQ(Refusal(request).error_message(), "draft: \"guess\", expected off or lookup");
}

TEST(ServingTest, TokenIdsGiveWhatTheirTextGives) {
  grpc::ClientContext context;
  v1::TokenizeRequest text;
  text.set_text("The old fox");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(Server().generation->Tokenize(&context, text, &tokens).ok());
  v1::GenerateRequest by_ids = Request("", 12);
  *by_ids.mutable_token_ids()->mutable_ids() = tokens.token_ids();
  EXPECT_EQ(Generate(by_ids).choices(0).text(),
            Generate(Request("The old fox", 12)).choices(0).text());
}

TEST(ServingTest, SeedMakesSamplingRepeatable) {
  v1::GenerateRequest request = Request("Once", 20);
  request.mutable_sampling()->set_temperature(1.0f);
  const v1::GenerateResponse first = Generate(request);
  request.mutable_sampling()->set_seed(first.final().seed());
  EXPECT_THAT(Tokens(Generate(request).choices(0)), ElementsAreArray(Tokens(first.choices(0))));
  request.mutable_sampling()->set_seed(first.final().seed() + 1);
  EXPECT_NE(Tokens(Generate(request).choices(0)), Tokens(first.choices(0)));
}

TEST(ServingTest, ChoicesDifferAndTheFirstIsTheOneAlone) {
  v1::GenerateRequest request = Request("Once", 20);
  request.mutable_sampling()->set_temperature(1.0f);
  request.mutable_sampling()->set_seed(3);
  const v1::GenerateResponse alone = Generate(request);
  request.set_n(3);
  const v1::GenerateResponse three = Generate(request);
  ASSERT_EQ(three.choices_size(), 3);
  EXPECT_EQ(Tokens(three.choices(0)), Tokens(alone.choices(0)));
  EXPECT_NE(Tokens(three.choices(1)), Tokens(alone.choices(0)));
  EXPECT_EQ(three.final().usage().generated_tokens(), 60);
}

TEST(ServingTest, StopTextCutsTheOutputBeforeIt) {
  const std::string whole = Generate(Request("Once upon a time", 60)).choices(0).text();
  ASSERT_GT(whole.size(), 30u);
  // From the middle of a character's start to wherever it falls: across tokens, most likely.
  size_t begin = whole.size() / 2;
  while ((static_cast<unsigned char>(whole[begin]) & 0xc0) == 0x80) ++begin;
  size_t end = begin + 6;
  while (end < whole.size() && (static_cast<unsigned char>(whole[end]) & 0xc0) == 0x80) ++end;
  const std::string stop = whole.substr(begin, end - begin);
  v1::GenerateRequest request = Request("Once upon a time", 60);
  request.add_stop(stop);
  const v1::GenerateResponse response = Generate(request);
  EXPECT_EQ(response.choices(0).text(), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(response.final().choices(0).reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(response.final().choices(0).stop_text(), stop);
  EXPECT_LT(response.final().usage().generated_tokens(), 60);
}

TEST(ServingTest, StopTokenEndsTheOutputAndIsInIt) {
  const std::vector<int32_t> whole = Tokens(Generate(Request("Once", 20)).choices(0));
  v1::GenerateRequest request = Request("Once", 20);
  request.add_stop_token_ids(whole[5]);
  const v1::GenerateResponse response = Generate(request);
  EXPECT_EQ(Tokens(response.choices(0)).back(), whole[5]);
  EXPECT_EQ(response.final().choices(0).reason(), v1::FINISH_REASON_STOP_TOKEN);
}

TEST(ServingTest, LogprobsAreOrderedAndGreedyTakesTheFirst) {
  v1::GenerateRequest request = Request("Once", 8);
  request.set_logprobs(5);
  const v1::GenerateResponse response = Generate(request);
  for (const v1::Token& token : response.choices(0).tokens()) {
    ASSERT_EQ(token.top_logprobs_size(), 5);
    EXPECT_EQ(token.top_logprobs(0).token_id(), token.token_id());
    EXPECT_FLOAT_EQ(token.top_logprobs(0).logprob(), token.logprob());
    for (int i = 1; i < 5; ++i) {
      EXPECT_GE(token.top_logprobs(i - 1).logprob(), token.top_logprobs(i).logprob());
    }
  }
}

TEST(ServingTest, ScoreEqualsThePromptsOwnLogprobs) {
  v1::ScoreRequest score;
  for (int32_t id : {1, 300, 301, 302}) score.mutable_token_ids()->add_ids(id);
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{400, 401}, {500}}) {
    score.add_continuation_token_ids()->mutable_ids()->Assign(ids.begin(), ids.end());
  }
  grpc::ClientContext context;
  v1::ScoreResponse scores;
  ASSERT_TRUE(Server().generation->Score(&context, score, &scores).ok());
  ASSERT_EQ(scores.scores_size(), 2);
  v1::GenerateRequest request;
  for (int32_t id : {1, 300, 301, 302, 400, 401}) request.mutable_token_ids()->add_ids(id);
  request.set_max_new_tokens(0);
  request.set_prompt_logprobs(0);
  const v1::GenerateResponse prompt = Generate(request);
  ASSERT_EQ(prompt.prompt_logprobs().tokens_size(), 5);
  const double expected = prompt.prompt_logprobs().tokens(3).token().logprob() +
                          prompt.prompt_logprobs().tokens(4).token().logprob();
  EXPECT_NEAR(scores.scores(0).logprob(), expected, 1e-5);
  EXPECT_EQ(prompt.final().usage().generated_tokens(), 0);
  const int best = scores.scores(0).logprob() >= scores.scores(1).logprob() ? 0 : 1;
  EXPECT_EQ(scores.best(), best);
}

TEST(ServingTest, ScoreFindsGreedyDecodingGreedy) {
  const v1::GenerateResponse response = Generate(Request("Once", 4));
  v1::ScoreRequest score;
  grpc::ClientContext tokenize, context;
  v1::TokenizeRequest text;
  text.set_text("Once");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(Server().generation->Tokenize(&tokenize, text, &tokens).ok());
  *score.mutable_token_ids()->mutable_ids() = tokens.token_ids();
  for (int32_t id : Tokens(response.choices(0))) {
    if (score.continuation_token_ids_size() == 0) score.add_continuation_token_ids();
    score.mutable_continuation_token_ids(0)->add_ids(id);
  }
  v1::ScoreResponse scores;
  ASSERT_TRUE(Server().generation->Score(&context, score, &scores).ok());
  EXPECT_TRUE(scores.scores(0).greedy());
}

TEST(ServingTest, ModelsAreListedWithLimitsAndDefaults) {
  grpc::ClientContext list_context, get_context, unknown_context;
  v1::ListModelsResponse list;
  ASSERT_TRUE(Server().models->ListModels(&list_context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 1);
  v1::GetModelRequest request;
  request.set_name(list.models(0).name());
  v1::Model model;
  ASSERT_TRUE(Server().models->GetModel(&get_context, request, &model).ok());
  EXPECT_EQ(model.limits().context_tokens(), 1024);
  EXPECT_EQ(model.architecture().n_kv_heads(), 2);
  EXPECT_EQ(model.dtype(), "float32");
  std::vector<std::string> names;
  for (const v1::Mechanism& mechanism : model.mechanisms()) names.push_back(mechanism.name());
  EXPECT_THAT(names, ElementsAre("standard", "atp", "taylorshift", "optimised", "efficient",
                                 "super", "lasso"));
  EXPECT_EQ(model.mechanisms(5).max_tokens(), 700);
  EXPECT_GT(model.mechanisms(4).cache_bytes_per_token(), 0);
  request.set_name("other");
  EXPECT_EQ(Server().models->GetModel(&unknown_context, request, &model).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(ServingTest, StatsCountWhatWasDone) {
  const v1::StatsResponse before = Server().WaitUntilIdle();
  Generate(Request("Once upon a time", 9));
  const v1::StatsResponse after = Server().WaitUntilIdle();
  EXPECT_EQ(after.finished_requests(), before.finished_requests() + 1);
  EXPECT_EQ(after.generated_tokens(), before.generated_tokens() + 9);
  EXPECT_EQ(after.cache_bytes_used(), 0);
  EXPECT_GT(after.cache_bytes_total(), 0);
  EXPECT_GT(after.weight_bytes(), 0);
}

TEST(ServingTest, ReflectionListsTheServices) {
  // grpc.reflection.v1alpha.ServerReflectionRequest{list_services: "*"}, by hand: field 7.
  grpc::GenericStub stub(Server().Connect());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto step = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(step());
  const grpc::Slice slice("\x3a\x01*", 3);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  ASSERT_TRUE(step());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(step());
  grpc::Slice bytes;
  ASSERT_TRUE(answer.DumpToSingleSlice(&bytes).ok());
  const std::string text(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  for (const char* name :
       {"lowkey.v1.Generation", "lowkey.v1.Models", "lowkey.v1.Admin", "grpc.health.v1.Health"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

TEST(ServingTest, BadRequestsHaveTheirCodesAndNameTheField) {
  struct Case {
    std::function<void(v1::GenerateRequest&)> spoil;
    grpc::StatusCode code;
    std::string says;
  };
  const Case kCases[] = {
      {[](auto& r) { r.set_text(""); }, grpc::StatusCode::INVALID_ARGUMENT, "text"},
      {[](auto& r) { r.clear_text(); }, grpc::StatusCode::INVALID_ARGUMENT, "input"},
      {[](auto& r) { r.mutable_token_ids()->add_ids(-1); }, grpc::StatusCode::INVALID_ARGUMENT,
       "token_ids[0]"},
      {[](auto& r) { r.set_max_new_tokens(-1); }, grpc::StatusCode::INVALID_ARGUMENT,
       "max_new_tokens"},
      {[](auto& r) { r.set_max_new_tokens(1 << 20); }, grpc::StatusCode::OUT_OF_RANGE, ""},
      {[](auto& r) { r.set_n(9); }, grpc::StatusCode::INVALID_ARGUMENT, "n: 9"},
      {[](auto& r) { r.set_logprobs(21); }, grpc::StatusCode::INVALID_ARGUMENT, "logprobs"},
      {[](auto& r) { r.set_model("x"); }, grpc::StatusCode::NOT_FOUND, "model"},
      {[](auto& r) { r.set_priority(-101); }, grpc::StatusCode::INVALID_ARGUMENT, "priority"},
      {[](auto& r) { r.add_stop(""); }, grpc::StatusCode::INVALID_ARGUMENT, "stop[0]"},
      {[](auto& r) { r.mutable_sampling()->set_temperature(std::nanf("")); },
       grpc::StatusCode::INVALID_ARGUMENT, "temperature"},
      {[](auto& r) { r.mutable_sampling()->set_top_k(1 << 20); },
       grpc::StatusCode::INVALID_ARGUMENT, "top_k"},
      {[](auto& r) { r.mutable_attention()->set_mechanism("ATP"); },
       grpc::StatusCode::INVALID_ARGUMENT, "mechanism"},
      {[](auto& r) { r.mutable_attention()->set_rank("1/4"); }, grpc::StatusCode::INVALID_ARGUMENT,
       "attention.rank"},
  };
  for (const Case& c : kCases) {
    v1::GenerateRequest request = Request("Once", 4);
    c.spoil(request);
    const grpc::Status status = Refusal(request);
    EXPECT_EQ(status.error_code(), c.code) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(c.says));
  }
  EXPECT_EQ(Server().WaitUntilIdle().cache_bytes_used(), 0);
}

// Bytes that no protobuf library would send.
TEST(ServingTest, MalformedBytesAreInvalidAndTheServerGoesOn) {
  const std::pair<std::string, std::string> kCases[] = {
      {std::string("\x1a\x01\xff"), "text: not UTF-8"},
      {std::string("\x4a\x01\xff"), "stop: not UTF-8"},
      {std::string("\x1a\x7f"), "message: malformed"},
      {std::string("\xff\xff\xff\xff"), "message: malformed"},
  };
  grpc::GenericStub stub(Server().Connect());
  for (const char* method : {"Generate", "GenerateStream"}) {
    for (const auto& [bytes, says] : kCases) {
      grpc::ClientContext context;
      grpc::CompletionQueue queue;
      const grpc::Slice slice(bytes);
      const grpc::ByteBuffer request(&slice, 1);
      auto call = stub.PrepareUnaryCall(&context, std::string("/lowkey.v1.Generation/") + method,
                                        request, &queue);
      call->StartCall();
      grpc::ByteBuffer response;
      grpc::Status status;
      call->Finish(&response, &status, nullptr);
      void* tag = nullptr;
      bool ok = false;
      ASSERT_TRUE(queue.Next(&tag, &ok));
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
      EXPECT_THAT(status.error_message(), HasSubstr(says));
    }
  }
  EXPECT_EQ(Generate(Request("Once", 3)).choices(0).tokens_size(), 3);
}

TEST(ServingTest, AttentionReportShowsWhatAtpSaved) {
  v1::GenerateRequest request = Request("Once", 400);
  const v1::AttentionReport standard = Generate(request).final().attention();
  EXPECT_EQ(standard.mechanism(), "standard");
  EXPECT_EQ(standard.reason(), "default");
  EXPECT_FALSE(standard.approximate());
  EXPECT_EQ(standard.cache_bytes(), standard.standard_cache_bytes());
  request.mutable_attention()->set_mechanism("atp");
  request.mutable_attention()->set_rank("8");
  request.mutable_attention()->set_block_tokens(64);
  const v1::AttentionReport atp = Generate(request).final().attention();
  EXPECT_EQ(atp.mechanism(), "atp");
  EXPECT_EQ(atp.reason(), "requested");
  EXPECT_EQ(atp.rank(), 8);
  EXPECT_TRUE(atp.approximate());
  EXPECT_GE(atp.compressed_blocks(), 4);
  EXPECT_LT(atp.cache_bytes(), atp.standard_cache_bytes());
  EXPECT_EQ(atp.standard_cache_bytes(), standard.cache_bytes());
}

TEST(ServingTest, AttentionReportShowsTheStateOfTaylorShift) {
  v1::GenerateRequest request = Request("Once", 200);
  request.mutable_attention()->set_mechanism("taylorshift");
  request.mutable_attention()->set_form("recurrent");
  const v1::AttentionReport recurrent = Generate(request).final().attention();
  EXPECT_EQ(recurrent.mechanism(), "taylorshift");
  EXPECT_TRUE(recurrent.approximate());
  EXPECT_GE(recurrent.state_tokens(), 64);
  request.mutable_attention()->set_form("direct");
  const v1::AttentionReport direct = Generate(request).final().attention();
  EXPECT_EQ(direct.state_tokens(), 0);
  EXPECT_EQ(direct.cache_bytes(), direct.standard_cache_bytes());
}

TEST(ServingTest, MechanismsOfTheBundleAreServed) {
  std::set<std::string> texts;
  for (const char* mechanism : {"standard", "optimised", "efficient", "super", "lasso"}) {
    v1::GenerateRequest request = Request("Once upon a time there was", 24);
    request.mutable_attention()->set_mechanism(mechanism);
    const v1::GenerateResponse response = Generate(request);
    EXPECT_EQ(response.final().attention().mechanism(), mechanism);
    EXPECT_EQ(response.final().attention().reason(), "requested");
    texts.insert(response.choices(0).text());
  }
  EXPECT_EQ(texts.size(), 5u);  // each its own weights
}

TEST(ServingTest, AutoTakesNothingBelowTheFloorOfQuality) {
  v1::GenerateRequest request = Request("Once upon a time", 8);
  request.mutable_attention()->set_mechanism("auto");
  request.mutable_attention()->add_allowed("lasso");  // measured at 1.1, and the floor is 1.02
  EXPECT_THAT(Refusal(request).error_message(), HasSubstr("at most 1.02 times standard's"));
  request.mutable_attention()->set_max_perplexity_ratio(0.5);
  EXPECT_THAT(Refusal(request).error_message(), HasSubstr("attention.max_perplexity_ratio: 0.5"));
}

TEST(ServingTest, AutoSaysWhatItComparedAndWhereItsAnswerChanges) {
  v1::GenerateRequest request = Request("Once upon a time", 8);
  request.mutable_attention()->set_mechanism("auto");
  request.mutable_attention()->set_objective("memory");
  request.mutable_attention()->add_allowed("standard");
  request.mutable_attention()->add_allowed("lasso");
  request.mutable_attention()->set_max_perplexity_ratio(1.2);
  const v1::AttentionReport report = Generate(request).final().attention();
  EXPECT_THAT(report.reason(), HasSubstr("auto, memory, no profile: standard"));
  EXPECT_THAT(report.reason(), HasSubstr("(taken)"));
  EXPECT_THAT(report.reason(), HasSubstr("lasso"));
  EXPECT_THAT(report.reason(), HasSubstr("perplexity x 1.100"));
  for (const v1::Crossover& crossover : report.crossovers()) {
    EXPECT_NE(crossover.from(), crossover.to());
    EXPECT_GT(crossover.prompt_tokens(), 0);
  }
}

}  // namespace
}  // namespace lowkey
