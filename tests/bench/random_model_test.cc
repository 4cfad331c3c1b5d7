#include "bench/random_model.h"

#include <cmath>
#include <vector>

#include "engine/loader/checkpoint.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

void ExpectSameConfig(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_dim, b.hidden_dim);
  EXPECT_EQ(a.ffn_dim, b.ffn_dim);
  EXPECT_EQ(a.n_layers, b.n_layers);
  EXPECT_EQ(a.n_heads, b.n_heads);
  EXPECT_EQ(a.n_kv_heads, b.n_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.context_tokens, b.context_tokens);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.rope_scaling, b.rope_scaling);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.attention_bias, b.attention_bias);
  EXPECT_EQ(a.mlp_bias, b.mlp_bias);
  EXPECT_EQ(a.sliding_window, b.sliding_window);
  EXPECT_EQ(a.bos_token, b.bos_token);
  EXPECT_EQ(a.eos_tokens, b.eos_tokens);
}

void ExpectOpensAsWritten(const RandomModelOptions& options) {
  const TinyModel model(options);
  const auto checkpoint = OpenCheckpoint(model.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ExpectSameConfig((*checkpoint)->config, options.config);
  EXPECT_EQ((*checkpoint)->embedding.dtype, options.dtype);
}

TEST(WriteRandomModel, EveryConfigReadsBackAsItWas) {
  RandomModelOptions options{.config = TinyConfig(), .dtype = DType::kF32};
  ExpectOpensAsWritten(options);
  options.config.rope_scaling = RopeLlama3{.factor = 3.5};
  options.config.tied_embeddings = true;
  options.dtype = DType::kBF16;
  ExpectOpensAsWritten(options);
  options.config.rope_scaling = RopeLinear{.factor = 1.0 / 3};
  options.config.attention_bias = options.config.mlp_bias = true;
  options.config.rope_theta = 123456.789;
  options.config.bos_token = std::nullopt;
  options.config.eos_tokens = {};
  options.dtype = DType::kF16;
  ExpectOpensAsWritten(options);
  options.config = TinyConfig();
  options.config.architecture = "MistralForCausalLM";
  options.config.sliding_window = 33;
  options.config.eos_tokens = {5, 6, 7};
  ExpectOpensAsWritten(options);
  options.config.sliding_window = std::nullopt;
  options.shard_bytes = 3000;
  ExpectOpensAsWritten(options);
}

TEST(WriteRandomModel, SameSeedSameBytesOtherSeedOthers) {
  RandomModelOptions options{.config = TinyConfig(), .seed = 7};
  const TinyModel a(options), b(options);
  options.seed = 8;
  const TinyModel c(options);
  const std::string bytes = ReadFileOrDie(a.File("model.safetensors"));
  EXPECT_EQ(bytes, ReadFileOrDie(b.File("model.safetensors")));
  EXPECT_NE(bytes, ReadFileOrDie(c.File("model.safetensors")));
}

std::vector<float> Floats(const TensorView& t) {
  std::vector<float> x(t.size());
  LoadFloats(t, 0, t.size(), x.data());
  return x;
}

TEST(WriteRandomModel, ShardsHoldTheSameWeights) {
  RandomModelOptions options{.config = TinyConfig(), .seed = 7};
  const TinyModel whole(options);
  options.shard_bytes = 5000;
  const TinyModel sharded(options);
  const auto a = OpenCheckpoint(whole.path()), b = OpenCheckpoint(sharded.path());
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_GT((*b)->files.size(), 3u);
  EXPECT_EQ((*a)->n_parameters, (*b)->n_parameters);
  EXPECT_EQ(Floats((*a)->lm_head), Floats((*b)->lm_head));
}

TEST(WriteRandomModel, WeightsHaveTheScaleOfTheirInput) {
  RandomModelOptions options{.config = TinyConfig(), .dtype = DType::kF32, .seed = 3};
  options.config.hidden_dim = 256;
  const TinyModel model(options);
  const auto checkpoint = OpenCheckpoint(model.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto deviation = [](const TensorView& t) {
    double sum = 0.0, squares = 0.0;
    for (const double x : Floats(t)) sum += x, squares += x * x;
    EXPECT_NEAR(sum / t.size(), 0.0, 0.05);
    return std::sqrt(squares / t.size());
  };
  EXPECT_NEAR(deviation((*checkpoint)->layers[0].gate_proj), 1.0 / 16, 0.003);
  EXPECT_NEAR(deviation((*checkpoint)->lm_head), 2.0 / 16, 0.003);
  EXPECT_NEAR(deviation((*checkpoint)->layers[1].down_proj), 0.5 / std::sqrt(48.0), 0.003);
}

TEST(WriteRandomModel, MissingDirectoryAndIntegerDtypeAreErrors) {
  RandomModelOptions options{.config = TinyConfig()};
  const TempDirectory directory;
  EXPECT_EQ(WriteRandomModel(directory.File("absent"), options).code(),
            absl::StatusCode::kUnavailable);
  options.dtype = DType::kI32;
  EXPECT_EQ(WriteRandomModel(directory.path(), options).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey
