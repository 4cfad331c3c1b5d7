// Requests of the Open Inference Protocol, honest and hostile.
#include "server/api/kserve/infer_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/server/api/kserve/requests.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<InferRequest> Read(const RequestBuilder& builder,
                                  InferMethod method = InferMethod::kStream) {
  return ReadInferRequest(builder.Bytes(), method);
}

InferRequest ReadOk(const RequestBuilder& builder) {
  auto request = Read(builder);
  EXPECT_TRUE(request.ok()) << request.status();
  return request.ok() ? *std::move(request) : InferRequest();
}

// The message of a request that is refused with this code.
std::string Refusal(const RequestBuilder& builder,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument,
                    InferMethod method = InferMethod::kStream) {
  const auto request = Read(builder, method);
  EXPECT_EQ(request.status().code(), code) << request.status();
  return std::string(request.status().message());
}

TEST(InferRequestTest, TextIsThePromptAndStandsBeforeAnUnstreamedAnswer) {
  RequestBuilder builder;
  builder.Text("text_input", "Once upon");
  const InferRequest request = ReadOk(builder);
  EXPECT_EQ(std::get<std::string>(request.generation.input), "Once upon");
  EXPECT_EQ(request.answer.prompt, "Once upon");
  EXPECT_TRUE(request.answer.text);
  EXPECT_FALSE(request.answer.is_streamed);

  builder.Flag("stream", true);
  EXPECT_TRUE(ReadOk(builder).answer.is_streamed);
  EXPECT_EQ(ReadOk(builder).answer.prompt, "");
  EXPECT_THAT(Refusal(builder, absl::StatusCode::kInvalidArgument, InferMethod::kSingle),
              HasSubstr("stream: true, expected false or ModelStreamInfer"));
  builder.Flag("exclude_input_in_output", false);
  EXPECT_THAT(Refusal(builder), HasSubstr("exclude_input_in_output: false, expected true"));
}

TEST(InferRequestTest, TakesIdsInsteadOfText) {
  RequestBuilder builder;
  builder.Tensor("input_ids", "INT32", {1, 2}, RawNumber<int32_t>(7) + RawNumber<int32_t>(9));
  EXPECT_THAT(std::get<TokenList>(ReadOk(builder).generation.input), ElementsAre(7, 9));
  EXPECT_EQ(ReadOk(builder).answer.prompt, "");
  builder.Text("text_input", "x");
  EXPECT_THAT(Refusal(builder), HasSubstr("both text_input and input_ids"));
  EXPECT_THAT(Refusal(RequestBuilder()), HasSubstr("no text_input or input_ids"));

  RequestBuilder wide;
  wide.Tensor("input_ids", "INT64", {2}, RawNumber<int64_t>(7) + RawNumber<int64_t>(1LL << 40));
  EXPECT_THAT(Refusal(wide), HasSubstr("input_ids: element 1 is 1099511627776"));
  RequestBuilder batch;
  batch.Tensor("input_ids", "INT32", {2, 1}, RawNumber<int32_t>(7) + RawNumber<int32_t>(9));
  EXPECT_THAT(Refusal(batch), HasSubstr("input_ids: shape [2, 1], expected [n] or [1, n]"));
  RequestBuilder real;
  real.Tensor("input_ids", "FP32", {1}, RawNumber(1.0f));
  EXPECT_THAT(Refusal(real), HasSubstr("input_ids: FP32, expected datatype INT32 or INT64"));
}

TEST(InferRequestTest, ReadsTensorsOfSampling) {
  RequestBuilder builder = Story();
  builder.Tensor("max_tokens", "INT32", {1, 1}, RawNumber<int32_t>(5))
      .Tensor("temperature", "FP32", {1}, RawNumber(0.5f))
      .Tensor("top_k", "INT32", {1}, RawNumber<int32_t>(40))
      .Tensor("top_p", "FP64", {1}, RawNumber(0.25))
      .Tensor("random_seed", "UINT64", {1}, RawNumber(std::numeric_limits<uint64_t>::max()))
      .Tensor("stop_words", "BYTES", {1, 2}, RawText("The End") + RawText("\n\n"));
  const GenerationRequest request = ReadOk(builder).generation;
  EXPECT_EQ(request.max_new_tokens, 5);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(request.stop_texts, ElementsAre("The End", "\n\n"));
}

TEST(InferRequestTest, ReadsTypedContents) {
  RequestBuilder builder;
  const auto add = [&builder](const char* name, const char* datatype) {
    auto& input = *builder.proto.add_inputs();
    input.set_name(name);
    input.set_datatype(datatype);
    input.add_shape(1);
    return input.mutable_contents();
  };
  add("text_input", "BYTES")->add_bytes_contents("Once");
  add("max_tokens", "INT64")->add_int64_contents(5);
  add("top_k", "UINT32")->add_uint_contents(7);
  add("temperature", "FP32")->add_fp32_contents(0.5f);
  add("top_p", "FP64")->add_fp64_contents(0.5);
  add("random_seed", "UINT64")->add_uint64_contents(11);
  add("stream", "BOOL")->add_bool_contents(true);
  const InferRequest request = ReadOk(builder);
  EXPECT_EQ(std::get<std::string>(request.generation.input), "Once");
  EXPECT_EQ(request.generation.max_new_tokens, 5);
  EXPECT_EQ(request.generation.sampling.top_k, 7);
  EXPECT_EQ(request.generation.sampling.seed, 11u);
  EXPECT_TRUE(request.answer.is_streamed);

  builder.proto.mutable_inputs(6)->mutable_contents()->add_int_contents(1);
  EXPECT_THAT(Refusal(builder), HasSubstr("stream: contents of another datatype than BOOL"));
  builder.proto.mutable_inputs(6)->mutable_contents()->Clear();
  EXPECT_THAT(Refusal(builder), HasSubstr("stream: 0 elements, expected 1"));
}

TEST(InferRequestTest, RawAndTypedContentsExcludeEachOther) {
  RequestBuilder builder = Story();
  builder.proto.mutable_inputs(0)->mutable_contents()->add_bytes_contents("Once");
  EXPECT_THAT(Refusal(builder), HasSubstr("text_input: contents beside raw_input_contents"));
  RequestBuilder fewer = Story();
  fewer.proto.mutable_raw_input_contents()->RemoveLast();
  EXPECT_THAT(Refusal(fewer), HasSubstr("raw_input_contents: 1 entries, expected none, or one for "
                                        "each of 2 inputs"));
}

TEST(InferRequestTest, ShapesThatOverflowAreRefused) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  const std::vector<std::vector<int64_t>> shapes = {
      {kHuge, kHuge}, {kHuge, 2}, {int64_t{1} << 32, int64_t{1} << 32}, {0}, {-1},
      {1, -1},        {},         {1, 1, 1, 1, 1, 1, 1, 1, 1}};
  for (const auto& shape : shapes) {
    RequestBuilder builder;
    builder.Tensor("text_input", "BYTES", shape, RawText("Once"));
    EXPECT_THAT(Refusal(builder), HasSubstr("text_input: shape"));
  }
  for (const int64_t n : {int64_t{2}, kHuge}) {
    for (const char* datatype : {"BYTES", "INT32", "BOOL", "FP64"}) {
      RequestBuilder builder;
      builder.Tensor("input_ids", datatype, {n}, RawText("Three"));
      EXPECT_THAT(Refusal(builder), HasSubstr("input_ids: ")) << datatype;
    }
  }
}

TEST(InferRequestTest, CutOffBytesAreRefused) {
  const std::string whole = RawText("Once");
  for (size_t n = 0; n < whole.size(); ++n) {
    RequestBuilder builder;
    builder.Tensor("text_input", "BYTES", {1}, whole.substr(0, n));
    EXPECT_THAT(Refusal(builder), HasSubstr("text_input: ")) << n;
  }
  RequestBuilder longer;
  longer.Tensor("text_input", "BYTES", {1}, whole + "x");
  EXPECT_THAT(Refusal(longer), HasSubstr("text_input: raw contents that are cut off in element 1"));
  RequestBuilder endless;
  endless.Tensor("text_input", "BYTES", {1}, "\xFF\xFF\xFF\xFFOnce");
  EXPECT_THAT(Refusal(endless), HasSubstr("text_input: raw contents that are cut off"));
}

TEST(InferRequestTest, OtherDatatypesAreRefused) {
  RequestBuilder half = Story();
  half.Tensor("temperature", "FP16", {1}, "ab");
  EXPECT_THAT(Refusal(half), HasSubstr("temperature: datatype \"FP16\", expected one of BOOL"));
  RequestBuilder text = Story();
  text.Text("max_tokens", "many");
  EXPECT_THAT(Refusal(text), HasSubstr("max_tokens: \"many\", expected an integer"));
  RequestBuilder real = Story();
  real.Tensor("top_k", "FP32", {1}, RawNumber(2.5f));
  EXPECT_THAT(Refusal(real), HasSubstr("top_k: 2.5, expected an integer"));
  RequestBuilder number;
  number.Tensor("text_input", "INT32", {1}, RawNumber<int32_t>(1));
  EXPECT_THAT(Refusal(number), HasSubstr("text_input: INT32, expected datatype BYTES"));
  RequestBuilder flag = Story();
  flag.Tensor("return_logprobs", "INT32", {1}, RawNumber<int32_t>(1));
  EXPECT_THAT(Refusal(flag), HasSubstr("return_logprobs: 1, expected true or false"));
  RequestBuilder nan = Story();
  nan.Tensor("temperature", "FP32", {1}, RawNumber(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_THAT(Refusal(nan), HasSubstr("temperature: null, expected a number"));
  RequestBuilder broken;
  broken.Text("text_input", "\xFF");
  EXPECT_THAT(Refusal(broken), HasSubstr("text_input: byte 0 is not UTF-8"));
}

TEST(InferRequestTest, UnknownNamesAreRefused) {
  RequestBuilder input = Story();
  input.Tensor("bad_words", "BYTES", {2}, RawText("a") + RawText("b"));
  EXPECT_THAT(Refusal(input), HasSubstr("inputs: \"bad_words\" is not known"));
  RequestBuilder twice = Story();
  twice.Text("text_input", "again");
  EXPECT_THAT(Refusal(twice), HasSubstr("text_input: a second tensor, expected one"));
  RequestBuilder parameter = Story();
  parameter.Parameter("sequence_id", int64_t{5});
  EXPECT_THAT(Refusal(parameter), HasSubstr("parameters: \"sequence_id\" is not known"));
  RequestBuilder output = Story();
  output.proto.add_outputs()->set_name("tokens");
  EXPECT_THAT(Refusal(output), HasSubstr("outputs: \"tokens\" is not known"));
  RequestBuilder classes = Story();
  classes.proto.add_outputs()->set_name("text_output");
  (*classes.proto.mutable_outputs(0)->mutable_parameters())["classification"].set_int64_param(3);
  EXPECT_THAT(Refusal(classes), HasSubstr("outputs: text_output: parameter \"classification\""));
  RequestBuilder shared = Story();
  (*shared.proto.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param(
      "x");
  Refusal(shared, absl::StatusCode::kUnimplemented);
  RequestBuilder version = Story();
  version.proto.set_model_version("2");
  EXPECT_THAT(Refusal(version, absl::StatusCode::kNotFound), HasSubstr("model_version: \"2\""));
  RequestBuilder id = Story(std::string(257, 'i'));
  EXPECT_THAT(Refusal(id), HasSubstr("id: 257 bytes, expected at most 256"));
  RequestBuilder many;
  for (int i = 0; i < 65; ++i) many.Text(absl::StrCat("t", i), "");
  EXPECT_THAT(Refusal(many), HasSubstr("inputs: 65 tensors, expected at most 64"));
}

TEST(InferRequestTest, ReadsParameters) {
  RequestBuilder builder = Story("mine");
  builder.Parameter("priority", int64_t{-5})
      .Parameter("seed", std::string("7"))
      .Parameter("request_id", std::string("r1"))
      .Parameter("timeout", int64_t{2'000'000})
      .Parameter("triton_enable_empty_final_response", true)
      .Parameter("attention", std::string("atp"))
      .Parameter("attention_rank", std::string("1/8"))
      .Parameter("attention_sinks", std::string("3"))
      .Parameter("attention_merge", true);
  const absl::Time now = absl::Now();
  const InferRequest request = ReadOk(builder);
  EXPECT_EQ(request.generation.priority, -5);
  EXPECT_EQ(request.generation.sampling.seed, 7u);
  EXPECT_EQ(request.generation.request_id, "r1");
  EXPECT_GE(request.generation.deadline, now + absl::Seconds(2));
  EXPECT_LT(request.generation.deadline, now + absl::Seconds(200));
  EXPECT_TRUE(request.answer.has_empty_final);
  EXPECT_EQ(request.answer.id, "mine");
  EXPECT_EQ(request.generation.attention.mechanism, "atp");
  EXPECT_THAT(request.generation.attention.options,
              ElementsAre(Pair("merge", OptionValue(true)), Pair("rank", OptionValue("1/8")),
                          Pair("sinks", OptionValue(3))));
}

TEST(InferRequestTest, ReadsAttentionAsJson) {
  RequestBuilder builder = Story();
  builder.Parameter("attention",
                    std::string(R"({"mechanism": "auto", "allowed": ["atp", "standard"],
      "allow_approximate": true, "max_perplexity_ratio": 1.5, "block_tokens": 256, "rank": 64})"));
  const AttentionChoice attention = ReadOk(builder).generation.attention;
  EXPECT_EQ(attention.mechanism, "auto");
  EXPECT_THAT(attention.allowed, ElementsAre("atp", "standard"));
  EXPECT_EQ(attention.allow_approximate, true);
  EXPECT_EQ(attention.max_perplexity_ratio, 1.5);
  EXPECT_EQ(attention.options.at("block_tokens"), OptionValue(256));
  EXPECT_EQ(attention.options.at("rank"), OptionValue("64"));

  for (const char* text : {"{", "{\"rank\": {}}", "{\"rank\": []}", "{\"ranks\": 3}",
                           "{\"sinks\": 1.5}", "{\"sinks\": 99999999999}", "{\"merge\": 1}"}) {
    RequestBuilder wrong = Story();
    wrong.Parameter("attention", std::string(text));
    EXPECT_THAT(Refusal(wrong), HasSubstr("attention")) << text;
  }
  RequestBuilder large = Story();
  large.Parameter("attention", "{" + std::string(5000, ' ') + "}");
  EXPECT_THAT(Refusal(large), HasSubstr("attention: 5002 bytes, expected at most 4096"));
}

TEST(InferRequestTest, ReadsSamplingParameters) {
  RequestBuilder builder = Story();
  builder.Tensor("temperature", "FP32", {1}, RawNumber(0.5f))
      .Text("sampling_parameters", R"({"temperature": "0.1", "top_p": 0.95, "top_k": -1,
        "max_tokens": "7", "seed": 18446744073709551615, "n": 2, "ignore_eos": "true",
        "stop": ["a", "b"], "stop_token_ids": [3, "4"], "logit_bias": {"5": -1.5},
        "repetition_penalty": 1.0, "min_p": "0.05", "logprobs": 3, "skip_special_tokens": true,
        "use_beam_search": false, "min_tokens": 0, "presence_penalty": null})");
  const InferRequest request = ReadOk(builder);
  const GenerationRequest& generation = request.generation;
  EXPECT_EQ(generation.sampling.temperature, 0.5f);  // the tensor wins
  EXPECT_EQ(generation.sampling.top_p, 0.95f);
  EXPECT_EQ(generation.sampling.top_k, 0);
  EXPECT_EQ(generation.sampling.min_p, 0.05f);
  EXPECT_EQ(generation.max_new_tokens, 7);
  EXPECT_EQ(generation.sampling.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(generation.n, 2);
  EXPECT_EQ(request.answer.n_choices, 2);
  EXPECT_TRUE(generation.ignore_eos);
  EXPECT_EQ(generation.logprobs, 3);
  EXPECT_THAT(generation.stop_texts, ElementsAre("a", "b"));
  EXPECT_THAT(generation.stop_tokens, ElementsAre(3, 4));
  EXPECT_THAT(generation.sampling.logit_bias, ElementsAre(Pair(5, -1.5f)));
  EXPECT_FALSE(generation.sampling.presence_penalty.has_value());
}

TEST(InferRequestTest, WrongSamplingParametersAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "sampling_parameters: array, expected a JSON object"},
      {"{", "sampling_parameters: not JSON"},
      {R"({"temperature": "hot"})", "sampling_parameters.temperature: \"hot\", expected a number"},
      {R"({"temperature": "nan"})", "sampling_parameters.temperature: \"nan\", expected a number"},
      {R"({"temperature": 1e300})", "sampling_parameters.temperature: 1e+300, expected a number"},
      {R"({"temperature": []})", "sampling_parameters.temperature: [], expected"},
      {R"({"max_tokens": 1e3})", "sampling_parameters.max_tokens: 1000.0, expected an integer"},
      {R"({"max_tokens": 4294967296})", "sampling_parameters.max_tokens: 4294967296"},
      {R"({"seed": -1})", "sampling_parameters.seed: -1, expected an integer of 0.."},
      {R"({"guided_json": {}})", "sampling_parameters: \"guided_json\": {} is not supported"},
      {R"({"use_beam_search": true})", "\"use_beam_search\": true is not supported"},
      {R"({"stop": [1]})", "sampling_parameters.stop: 1, expected a text"},
      {R"({"stop_token_ids": 1})", "sampling_parameters.stop_token_ids: 1"},
      {R"({"logit_bias": {"a": 1}})", "sampling_parameters.logit_bias: \"a\""},
      {R"({"seed": 1, "seed": 2})", "key \"seed\" appears twice"},
      {R"({"a": [[[[]]]]})", "nested deeper than 3 levels"},
  };
  for (const auto& [text, message] : cases) {
    RequestBuilder builder = Story();
    builder.Text("sampling_parameters", text);
    EXPECT_THAT(Refusal(builder), HasSubstr(message)) << text;
  }
  RequestBuilder large = Story();
  large.Text("sampling_parameters", "{" + std::string(70'000, ' ') + "}");
  EXPECT_THAT(Refusal(large), HasSubstr("sampling_parameters: 70002 bytes"));
}

TEST(InferRequestTest, OutputsAreThoseAskedFor) {
  RequestBuilder builder = Story();
  builder.Flag("return_finish_reason", true).Flag("return_num_input_tokens", false);
  AnswerOptions answer = ReadOk(builder).answer;
  EXPECT_TRUE(answer.text);
  EXPECT_TRUE(answer.finish_reason);
  EXPECT_FALSE(answer.num_input_tokens);
  builder.proto.add_outputs()->set_name("cumulative_logprob");
  const InferRequest request = ReadOk(builder);
  EXPECT_FALSE(request.answer.text);
  EXPECT_TRUE(request.answer.finish_reason);
  EXPECT_TRUE(request.answer.cumulative_logprob);
  EXPECT_EQ(request.generation.logprobs, 0);
}

TEST(InferRequestTest, IdIsFoundWithoutParsing) {
  RequestBuilder builder = Story("abc");
  builder.proto.set_model_name("tales");
  EXPECT_EQ(PeekInferId(builder.Bytes()), "abc");
  EXPECT_EQ(PeekInferId(Story().Bytes()), "");
  EXPECT_EQ(PeekInferId(Story(std::string(256, 'i')).Bytes()), std::string(256, 'i'));
  EXPECT_EQ(PeekInferId(Story(std::string(257, 'i')).Bytes()), "");
  const std::string whole = builder.Bytes();
  for (size_t n = 0; n < whole.size(); ++n) PeekInferId(whole.substr(0, n));
  EXPECT_EQ(PeekInferId("\x1A\xFF\xFF\xFF\xFF\x7F"), "");
  EXPECT_EQ(PeekInferId("\x1A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), "");
  EXPECT_EQ(PeekInferId("\x1A\x01\xFF"), "");  // not UTF-8
}

}  // namespace
}  // namespace lowkey
