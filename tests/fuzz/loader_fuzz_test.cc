// The fuzz target over mutations of good inputs, always the same ones.

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "bench/random_model.h"
#include "engine/loader/config_json.h"
#include "engine/loader/safetensors.h"
#include "tests/testing/tiny_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

void RunTarget(char kind, const std::string& bytes) {
  std::string input(1, kind);
  input += bytes;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

constexpr char kConfig = 0, kSafetensors = 1;

std::string SeedConfig() {
  ModelConfig config = TinyConfig();
  config.rope_scaling = RopeLlama3{};
  return ConfigJson(config);
}

constexpr char kQwenSeed[] =
    R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
        "layer_types": ["sliding_attention", "sliding_attention"], "max_window_layers": 0,
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "sliding_window": 16, "use_sliding_window": true, "vocab_size": 100})";

std::string SeedWeights() {
  ModelConfig config = TinyConfig();
  config.n_layers = 1;
  const TinyModel model({.config = config});
  const std::string bytes = ReadFileOrDie(model.File("model.safetensors"));
  return bytes;
}

// Flips, removes, repeats and inserts bytes in the first `n` of them.
std::string Mutate(std::string bytes, size_t n, std::mt19937& random) {
  for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % std::min(n, bytes.size());
    switch (random() % 4) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        bytes.erase(at, random() % 16);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % std::min(n, bytes.size()), random() % 32));
        break;
      default:
        bytes.insert(at, 1, "0123456789-e.{}[],:\"\\"[random() % 21]);
    }
    if (bytes.empty()) bytes.push_back('{');
  }
  return bytes;
}

TEST(LoaderFuzzTest, AcceptsItsSeeds) {
  EXPECT_TRUE(ParseModelConfig(SeedConfig(), std::nullopt).ok());
  EXPECT_TRUE(ParseModelConfig(kQwenSeed, std::nullopt).ok());
  RunTarget(kConfig, SeedConfig());
  RunTarget(kSafetensors, SeedWeights());
  RunTarget(kConfig, "");
  RunTarget(kSafetensors, "");
}

TEST(LoaderFuzzTest, SurvivesTruncation) {
  const std::string config = SeedConfig(), weights = SeedWeights();
  for (size_t n = 0; n < config.size(); ++n) RunTarget(kConfig, config.substr(0, n));
  for (size_t n = 0; n < weights.size(); n += n < 2000 ? 1 : 397) {
    RunTarget(kSafetensors, weights.substr(0, n));
  }
}

TEST(LoaderFuzzTest, SurvivesMutatedConfigs) {
  std::mt19937 random(1);
  for (const std::string& seed : {SeedConfig(), std::string(kQwenSeed)}) {
    for (int i = 0; i < 20000; ++i) RunTarget(kConfig, Mutate(seed, seed.size(), random));
  }
}

TEST(LoaderFuzzTest, SurvivesMutatedHeaders) {
  const std::string seed = SeedWeights();
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) RunTarget(kSafetensors, Mutate(seed, 1200, random));
}

}  // namespace
}  // namespace lowkey
