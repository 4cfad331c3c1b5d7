// The fuzz target over mutations of good files, always the same ones.

#include <gtest/gtest.h>

#include "bench/random_model.h"
#include "engine/loader/config_json.h"
#include "tests/fuzz/json_mutations.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

std::vector<std::string> Seeds() {
  ModelConfig config = TinyConfig();
  config.rope_scaling = RopeLlama3{};
  return {ConfigJson(config),
          R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
              "layer_types": ["sliding_attention", "sliding_attention"], "max_window_layers": 0,
              "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
              "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
                                      "desc_act": true, "sym": false, "dynamic": {}},
              "sliding_window": 16, "use_sliding_window": true, "vocab_size": 100})"};
}

TEST(ConfigJsonFuzzTest, AcceptsItsSeeds) {
  for (const std::string& seed : Seeds()) {
    EXPECT_TRUE(ParseModelConfig(seed, std::nullopt).ok());
    RunTarget(seed);
  }
}

TEST(ConfigJsonFuzzTest, SurvivesTruncation) {
  for (const std::string& seed : Seeds()) {
    for (size_t n = 0; n < seed.size(); ++n) RunTarget(seed.substr(0, n));
  }
}

TEST(ConfigJsonFuzzTest, SurvivesMutation) {
  std::mt19937 random(1);
  for (const std::string& seed : Seeds()) {
    for (int i = 0; i < 20000; ++i) RunTarget(MutateJson(seed, seed.size(), random));
  }
}

}  // namespace
}  // namespace lowkey
