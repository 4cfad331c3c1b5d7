// The fuzz target over mutations of good requests, always the same ones.

#include <gtest/gtest.h>

#include <string>

#include "server/api/kserve/infer_request.h"
#include "tests/fuzz/json_mutations.h"
#include "tests/server/api/kserve/requests.h"

namespace lowkey {
namespace {

RequestBuilder SeedRequest() {
  RequestBuilder builder = StreamedStory("mine");
  builder
      .Text("sampling_parameters", R"({"temperature": "0.5", "stop": ["a"], "n": 2,
          "logit_bias": {"5": -1.5}, "stop_token_ids": [3], "seed": 7})")
      .Tensor("top_p", "FP32", {1}, RawNumber(0.5f))
      .Tensor("stop_words", "BYTES", {1, 2}, RawText("The End") + RawText("x"))
      .Flag("return_logprobs", true)
      .Parameter("attention", std::string(R"({"mechanism": "auto", "allowed": ["atp"]})"))
      .Parameter("attention_rank", std::string("1/8"))
      .Parameter("timeout", int64_t{1000});
  builder.proto.add_outputs()->set_name("text_output");
  return builder;
}

// The same with typed contents.
RequestBuilder TypedSeedRequest() {
  RequestBuilder builder;
  auto& ids = *builder.proto.add_inputs();
  ids.set_name("input_ids");
  ids.set_datatype("INT32");
  ids.add_shape(1);
  ids.add_shape(3);
  for (int i = 0; i < 3; ++i) ids.mutable_contents()->add_int_contents(i);
  auto& tokens = *builder.proto.add_inputs();
  tokens.set_name("max_tokens");
  tokens.set_datatype("UINT64");
  tokens.add_shape(1);
  tokens.mutable_contents()->add_uint64_contents(5);
  return builder;
}

TEST(KserveFuzzTest, AcceptsItsSeeds) {
  for (const RequestBuilder& seed : {SeedRequest(), TypedSeedRequest()}) {
    const auto request = ReadInferRequest(seed.Bytes(), InferMethod::kStream);
    EXPECT_TRUE(request.ok()) << request.status();
    RunTarget("\1" + seed.Bytes());
  }
}

TEST(KserveFuzzTest, SurvivesTruncation) {
  const std::string seed = "\1" + SeedRequest().Bytes();
  for (size_t n = 0; n < seed.size(); ++n) RunTarget(seed.substr(0, n));
}

TEST(KserveFuzzTest, SurvivesMutation) {
  std::mt19937 random(1);
  for (const RequestBuilder& builder : {SeedRequest(), TypedSeedRequest()}) {
    const std::string seed = builder.Bytes();
    for (int i = 0; i < 20000; ++i) RunTarget("\1" + MutateJson(seed, seed.size(), random));
  }
}

// Mutations within one tensor reach further than those of the whole message.
TEST(KserveFuzzTest, SurvivesMutationOfTensors) {
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    RequestBuilder builder = SeedRequest();
    const int at = static_cast<int>(random() % 7);
    std::string& raw = *builder.proto.mutable_raw_input_contents(at);
    raw = MutateJson(raw, raw.size(), random);
    if (random() % 4 == 0) {
      builder.proto.mutable_inputs(at)->set_shape(0, static_cast<int64_t>(random())
                                                         << random() % 40);
    }
    RunTarget("\1" + builder.Bytes());
  }
}

}  // namespace
}  // namespace lowkey
