#include "engine/loader/config_json.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json Minimal(const std::string& architecture = "LlamaForCausalLM") {
  return {{"architectures", {architecture}}, {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96},         {"num_hidden_layers", 2}, {"num_attention_heads", 4},
          {"num_key_value_heads", 4}};
}

// Minimal with `changes` over it.
json With(const json& changes, const std::string& architecture = "LlamaForCausalLM") {
  json config = Minimal(architecture);
  config.update(changes);
  return config;
}

ModelConfig Read(const json& config, const std::optional<json>& generation = std::nullopt) {
  const std::string generation_text = generation.has_value() ? generation->dump() : "";
  const auto result = ParseModelConfig(
      config.dump(), generation.has_value() ? std::make_optional<std::string_view>(generation_text)
                                            : std::nullopt);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ModelConfig{};
}

std::string ErrorOf(const json& config,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const auto result = ParseModelConfig(config.dump(), std::nullopt);
  EXPECT_EQ(result.status().code(), code) << config.dump();
  return std::string(result.status().message());
}

std::string UnimplementedOf(const json& config) {
  return ErrorOf(config, absl::StatusCode::kUnimplemented);
}

TEST(ParseModelConfig, AbsentFieldsTakeLlamasDefaults) {
  json minimal = Minimal();
  minimal.erase("num_key_value_heads");
  const ModelConfig config = Read(minimal);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.n_kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.context_tokens, 2048);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling, RopeScaling(RopeDefault{}));
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_EQ(config.sliding_window, std::nullopt);
  EXPECT_EQ(config.bos_token, 1);
  EXPECT_EQ(config.eos_tokens, std::vector<int32_t>{2});
}

TEST(ParseModelConfig, AbsentFieldsTakeMistralsDefaults) {
  json minimal = With({{"num_attention_heads", 8}}, "MistralForCausalLM");
  minimal.erase("num_key_value_heads");
  const ModelConfig config = Read(minimal);
  EXPECT_EQ(config.n_kv_heads, 8);
  EXPECT_EQ(config.context_tokens, 131072);
  EXPECT_EQ(config.sliding_window, 4096);
}

TEST(ParseModelConfig, ReadsEveryField) {
  const ModelConfig config = Read(With({{"num_key_value_heads", 2},
                                        {"head_dim", 32},
                                        {"max_position_embeddings", 77},
                                        {"rms_norm_eps", 1e-5},
                                        {"rope_theta", 5e5},
                                        {"tie_word_embeddings", true},
                                        {"attention_bias", true},
                                        {"mlp_bias", true},
                                        {"bos_token_id", 7},
                                        {"eos_token_id", {8, 9, 8}},
                                        {"torch_dtype", "bfloat16"},
                                        {"pretraining_tp", 2},
                                        {"attention_dropout", 0.1},
                                        {"partial_rotary_factor", 1.0}}));
  EXPECT_EQ(config.n_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.context_tokens, 77);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_EQ(config.rope_theta, 5e5);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_TRUE(config.mlp_bias);
  EXPECT_EQ(config.bos_token, 7);
  EXPECT_EQ(config.eos_tokens, (std::vector<int32_t>{8, 9}));
}

TEST(ParseModelConfig, NullsAreAbsentFields) {
  const ModelConfig config = Read(With({{"head_dim", nullptr},
                                        {"rope_scaling", nullptr},
                                        {"num_key_value_heads", nullptr},
                                        {"quantization_config", nullptr},
                                        {"sliding_window", nullptr}}));
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.n_kv_heads, 4);
}

TEST(ParseModelConfig, SizesOutOfRangeAreNamed) {
  EXPECT_EQ(ErrorOf(With({{"hidden_size", -1}})),
            "config.json: hidden_size: -1, expected 1..65536");
  EXPECT_EQ(ErrorOf(With({{"vocab_size", 1 << 21}})),
            "config.json: vocab_size: 2097152, expected 1..1048576");
  EXPECT_EQ(ErrorOf(With({{"num_hidden_layers", 1000000000}})),
            "config.json: num_hidden_layers: 1000000000, expected 1..512");
  EXPECT_EQ(ErrorOf(With({{"num_attention_heads", 0}})),
            "config.json: num_attention_heads: 0, expected 1..1024");
  EXPECT_EQ(ErrorOf(With({{"intermediate_size", 1e30}})),
            "config.json: intermediate_size: 1e+30, expected 1..262144");
  EXPECT_EQ(ErrorOf(With({{"max_position_embeddings", 1 << 25}})),
            "config.json: max_position_embeddings: 33554432, expected 1..16777216");
  for (const char* key : {"hidden_size", "vocab_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    json config = Minimal();
    config.erase(key);
    EXPECT_THAT(ErrorOf(config), HasSubstr(std::string(key) + ": missing, expected 1.."));
  }
}

TEST(ParseModelConfig, HeadsMustDivide) {
  EXPECT_EQ(ErrorOf(With({{"num_key_value_heads", 3}})),
            "config.json: num_attention_heads: 4, expected a multiple of num_key_value_heads 3");
  EXPECT_EQ(ErrorOf(With({{"hidden_size", 66}})),
            "config.json: hidden_size: 66, expected a multiple of num_attention_heads 4, or a "
            "head_dim");
  EXPECT_EQ(Read(With({{"hidden_size", 66}, {"head_dim", 8}})).head_dim, 8);
  EXPECT_EQ(ErrorOf(With({{"head_dim", 15}})),
            "config.json: head_dim: 15, expected an even number in 2..512");
  EXPECT_EQ(ErrorOf(With({{"hidden_size", 4096}})),
            "config.json: head_dim: 1024 (hidden_size / num_attention_heads), expected an even "
            "number in 2..512");
}

TEST(ParseModelConfig, RopeScalingInEveryForm) {
  for (const char* place : {"rope_scaling", "rope_parameters"}) {
    for (const char* type : {"type", "rope_type"}) {
      EXPECT_EQ(Read(With({{place, {{type, "default"}}}})).rope_scaling,
                RopeScaling(RopeDefault{}));
      EXPECT_EQ(Read(With({{place, {{type, "linear"}, {"factor", 2}}}})).rope_scaling,
                RopeScaling(RopeLinear{2.0}));
      EXPECT_EQ(Read(With({{place,
                            {{type, "llama3"},
                             {"factor", 32.0},
                             {"low_freq_factor", 1.5},
                             {"high_freq_factor", 4.5},
                             {"original_max_position_embeddings", 4096}}}}))
                    .rope_scaling,
                RopeScaling(RopeLlama3{32.0, 1.5, 4.5, 4096}));
    }
  }
}

TEST(ParseModelConfig, RopeParametersHoldTheta) {
  const json parameters = {{"rope_type", "default"}, {"rope_theta", 77.0}};
  EXPECT_EQ(Read(With({{"rope_parameters", parameters}})).rope_theta, 77.0);
  EXPECT_EQ(Read(With({{"rope_parameters", parameters}, {"rope_theta", 5.0}})).rope_theta, 77.0);
}

TEST(ParseModelConfig, ContradictingRopeFieldsAreErrors) {
  EXPECT_THAT(ErrorOf(With({{"rope_scaling", {{"type", "linear"}, {"rope_type", "llama3"}}}})),
              HasSubstr("type: \"linear\", expected the same as rope_type llama3"));
  EXPECT_THAT(ErrorOf(With({{"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
                            {"rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}}}})),
              HasSubstr("another scaling than rope_scaling"));
}

TEST(ParseModelConfig, RopeFactorsMustBeThereAndInRange) {
  EXPECT_EQ(ErrorOf(With({{"rope_scaling", {{"type", "linear"}}}})),
            "config.json: rope_scaling: factor: missing, expected a number in 1e-06..1e+06");
  EXPECT_THAT(ErrorOf(With({{"rope_scaling", {{"type", "linear"}, {"factor", 0}}}})),
              HasSubstr("rope_scaling: factor: 0"));
  const json equal = {{"rope_type", "llama3"},
                      {"factor", 8.0},
                      {"low_freq_factor", 4.0},
                      {"high_freq_factor", 4.0},
                      {"original_max_position_embeddings", 4096}};
  EXPECT_EQ(ErrorOf(With({{"rope_scaling", equal}})),
            "config.json: rope_scaling: high_freq_factor: 4.0, expected more than low_freq_factor "
            "4");
  EXPECT_THAT(ErrorOf(With({{"rope_scaling", "linear"}})), HasSubstr("expected an object or null"));
  EXPECT_THAT(ErrorOf(With({{"rope_theta", 0}})), HasSubstr("rope_theta: 0"));
}

TEST(ParseModelConfig, WhatWeDoNotComputeIsUnimplementedByName) {
  for (const char* type : {"dynamic", "yarn", "longrope", "su"}) {
    EXPECT_EQ(UnimplementedOf(With({{"rope_scaling", {{"type", type}, {"factor", 2.0}}}})),
              "config.json: rope_scaling: type: \"" + std::string(type) +
                  "\" is not supported, expected \"default\", \"linear\" or \"llama3\"");
  }
  EXPECT_THAT(UnimplementedOf(With({{"hidden_act", "gelu"}})), HasSubstr("hidden_act: \"gelu\""));
  EXPECT_THAT(UnimplementedOf(With({{"compression_config", {{"format", "dense"}}}})),
              HasSubstr("compression_config: "));
  EXPECT_THAT(UnimplementedOf(With({{"partial_rotary_factor", 0.5}})),
              HasSubstr("partial_rotary_factor: 0.5 is not supported, expected 1"));
  EXPECT_THAT(UnimplementedOf(With({{"rope_parameters", {{"partial_rotary_factor", 0.5}}}})),
              HasSubstr("partial_rotary_factor"));
  EXPECT_THAT(UnimplementedOf(Minimal("GemmaForCausalLM")),
              HasSubstr("architectures: [\"GemmaForCausalLM\"] is not supported, expected one of "
                        "[\"LlamaForCausalLM\"]"));
}

TEST(ParseModelConfig, ArchitectureMustBeOneName) {
  for (const json& bad : {json(nullptr), json("LlamaForCausalLM"), json::array(), json({1}),
                          json({"LlamaForCausalLM", "MistralForCausalLM"})}) {
    EXPECT_THAT(ErrorOf(With({{"architectures", bad}})), HasSubstr("config.json: architectures: "));
  }
}

TEST(ParseModelConfig, SlidingWindowIsMistralsAlone) {
  EXPECT_EQ(Read(With({{"sliding_window", 16}}, "MistralForCausalLM")).sliding_window, 16);
  EXPECT_EQ(Read(With({{"sliding_window", nullptr}}, "MistralForCausalLM")).sliding_window,
            std::nullopt);
  EXPECT_EQ(Read(With({{"sliding_window", 16}})).sliding_window, std::nullopt);
  EXPECT_THAT(ErrorOf(With({{"sliding_window", 0}}, "MistralForCausalLM")),
              HasSubstr("sliding_window: 0"));
}

TEST(ParseModelConfig, Qwen2HasBiasesOnQueriesKeysAndValuesAlone) {
  json minimal = Minimal("Qwen2ForCausalLM");
  minimal["num_attention_heads"] = 32;
  minimal.erase("num_key_value_heads");
  const ModelConfig config = Read(minimal);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_FALSE(config.qk_norm);
  EXPECT_EQ(config.n_kv_heads, 32);
  EXPECT_EQ(config.head_dim, 2);
  EXPECT_EQ(config.context_tokens, 32768);
  EXPECT_EQ(config.sliding_window, std::nullopt);
  EXPECT_EQ(config.bos_token, std::nullopt);
  EXPECT_TRUE(config.eos_tokens.empty());
  EXPECT_TRUE(Read(With({{"attention_bias", false}}, "Qwen2ForCausalLM")).attention_bias);
}

TEST(ParseModelConfig, Qwen3NormsHeadsOf128AndHasNoBiases) {
  const ModelConfig config = Read(Minimal("Qwen3ForCausalLM"));
  EXPECT_TRUE(config.qk_norm);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_FALSE(config.output_bias);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.context_tokens, 32768);
  EXPECT_EQ(Read(With({{"head_dim", 32}}, "Qwen3ForCausalLM")).head_dim, 32);
  EXPECT_TRUE(Read(With({{"attention_bias", true}}, "Qwen3ForCausalLM")).output_bias);
}

TEST(ParseModelConfig, QwensWindowNeedsItsSwitchAndAllLayers) {
  const auto qwen = [](const json& changes) { return With(changes, "Qwen2ForCausalLM"); };
  EXPECT_EQ(Read(qwen({{"sliding_window", 16}})).sliding_window, std::nullopt);
  json on = {{"sliding_window", 16}, {"use_sliding_window", true}};
  EXPECT_EQ(Read(qwen(on)).sliding_window, std::nullopt);  // max_window_layers is 28
  on["max_window_layers"] = 0;
  EXPECT_EQ(Read(qwen(on)).sliding_window, 16);
  on["max_window_layers"] = 1;
  EXPECT_THAT(UnimplementedOf(qwen(on)), HasSubstr("expected a window in all layers or in none"));
  on["layer_types"] = {"sliding_attention", "sliding_attention"};
  EXPECT_EQ(Read(qwen(on)).sliding_window, 16);
  on["layer_types"] = {"full_attention", "full_attention"};
  EXPECT_EQ(Read(qwen(on)).sliding_window, std::nullopt);
  on["layer_types"] = {"sliding_attention", "full_attention"};
  EXPECT_THAT(UnimplementedOf(qwen(on)), HasSubstr("use_sliding_window: true"));
  for (const json& bad : {json(3), json({"full_attention"}), json({"full_attention", "no"})}) {
    on["layer_types"] = bad;
    EXPECT_THAT(ErrorOf(qwen(on)), HasSubstr("config.json: layer_types: "));
  }
}

TEST(ParseModelConfig, MistralHasNoBiases) {
  EXPECT_FALSE(Read(With({{"attention_bias", true}}, "MistralForCausalLM")).attention_bias);
}

TEST(ParseModelConfig, GenerationConfigNamesTokensFirst) {
  const json config = With({{"bos_token_id", 3}, {"eos_token_id", 4}});
  const ModelConfig both = Read(config, json{{"bos_token_id", 5}, {"eos_token_id", {6, 7}}});
  EXPECT_EQ(both.bos_token, 5);
  EXPECT_EQ(both.eos_tokens, (std::vector<int32_t>{6, 7}));
  const ModelConfig neither = Read(config, json{{"temperature", 0.6}});
  EXPECT_EQ(neither.bos_token, 3);
  EXPECT_EQ(neither.eos_tokens, std::vector<int32_t>{4});
  const ModelConfig null = Read(With({{"bos_token_id", nullptr}, {"eos_token_id", nullptr}}));
  EXPECT_EQ(null.bos_token, std::nullopt);
  EXPECT_TRUE(null.eos_tokens.empty());
}

TEST(ParseModelConfig, TokensOutsideTheVocabularyAreErrors) {
  for (const json& id :
       {json(100), json(-1), json("2"), json({1, 100}), json(1.5), json(std::vector<int>(65, 1))}) {
    EXPECT_THAT(ErrorOf(With({{"eos_token_id", id}})), HasSubstr("expected ids in 0..99"));
  }
  const auto result = ParseModelConfig(Minimal().dump(), R"({"bos_token_id": 100})");
  EXPECT_EQ(result.status().message(),
            "generation_config.json: bos_token_id: 100, expected ids in 0..99");
}

TEST(ParseModelConfig, WrongTypesAreErrors) {
  EXPECT_THAT(ErrorOf(With({{"tie_word_embeddings", 1}})), HasSubstr("expected true or false"));
  EXPECT_THAT(ErrorOf(With({{"rms_norm_eps", "1e-5"}})), HasSubstr("rms_norm_eps: \"1e-5\""));
  EXPECT_THAT(ErrorOf(With({{"rms_norm_eps", 0}})), HasSubstr("rms_norm_eps: 0"));
  EXPECT_THAT(ErrorOf(With({{"hidden_size", 64.0}})), HasSubstr("hidden_size: 64.0"));
  EXPECT_THAT(std::string(ParseModelConfig("nonsense", std::nullopt).status().message()),
              HasSubstr("config.json: not JSON at line 1, column 2: "));
  EXPECT_EQ(ParseModelConfig(Minimal().dump(), "[]").status().message(),
            "generation_config.json: array, expected a JSON object");
}

}  // namespace
}  // namespace lowkey
