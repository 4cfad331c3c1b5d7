#include "engine/loader/gguf_config.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_builder.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<GgufConfig> Config(const GgufBuilder& builder) {
  const std::string bytes = builder.Build();
  const auto index =
      ParseGguf({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "f");
  EXPECT_TRUE(index.ok()) << index.status();
  return ReadGgufConfig(*index);
}

ModelConfig Read(const GgufBuilder& builder) {
  const auto config = Config(builder);
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? config->model : ModelConfig{};
}

std::string ErrorOf(const GgufBuilder& builder,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  const absl::Status status = Config(builder).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

std::string UnimplementedOf(const GgufBuilder& builder) {
  return ErrorOf(builder, absl::StatusCode::kUnimplemented);
}

// TinyGguf with the keys of another architecture.
GgufBuilder TinyOf(const std::string& architecture) {
  GgufBuilder b = TinyGguf();
  b.String("general.architecture", architecture);
  for (const auto& [key, value] : std::map<std::string, uint32_t>{{"block_count", 2},
                                                                  {"context_length", 128},
                                                                  {"embedding_length", 32},
                                                                  {"feed_forward_length", 64},
                                                                  {"attention.head_count", 4}}) {
    b.Uint32(architecture + "." + key, value);
  }
  b.Float32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  return b;
}

TEST(ReadGgufConfig, LlamaHasTheseSizes) {
  const auto result = Config(TinyGguf());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->interleaved_qk);
  const ModelConfig& c = result->model;
  EXPECT_EQ(c.architecture, "LlamaForCausalLM");
  EXPECT_EQ(c.vocab_size, 16);
  EXPECT_EQ(c.hidden_dim, 32);
  EXPECT_EQ(c.ffn_dim, 64);
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.n_heads, 4);
  EXPECT_EQ(c.n_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.context_tokens, 128);
  EXPECT_EQ(c.rms_norm_eps, 1e-5f);
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.rope_scaling, RopeScaling(RopeDefault{}));
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_FALSE(c.attention_bias || c.output_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.bos_token, 1);
  EXPECT_THAT(c.eos_tokens, ElementsAre(2));
}

TEST(ReadGgufConfig, QwensDifferInBiasesNormsAndRowOrder) {
  const auto qwen2 = Config(TinyOf("qwen2")), qwen3 = Config(TinyOf("qwen3"));
  ASSERT_TRUE(qwen2.ok() && qwen3.ok()) << qwen2.status() << qwen3.status();
  EXPECT_EQ(qwen2->model.architecture, "Qwen2ForCausalLM");
  EXPECT_TRUE(qwen2->model.attention_bias);
  EXPECT_FALSE(qwen2->model.output_bias || qwen2->model.qk_norm || qwen2->interleaved_qk);
  EXPECT_EQ(qwen2->model.n_kv_heads, 4);  // as many as heads where it is absent
  EXPECT_TRUE(qwen3->model.qk_norm);
  EXPECT_FALSE(qwen3->model.attention_bias || qwen3->interleaved_qk);
}

TEST(ReadGgufConfig, OtherArchitecturesAreUnimplemented) {
  EXPECT_EQ(UnimplementedOf(TinyOf("gemma")),
            "f: general.architecture: \"gemma\", expected what we compute: llama, qwen2 or qwen3");
  GgufBuilder b = TinyGguf();
  b.Erase("general.architecture");
  EXPECT_THAT(ErrorOf(b), HasSubstr("general.architecture: missing"));
}

TEST(ReadGgufConfig, MissingKeysAreNamed) {
  for (const char* key : {"llama.block_count", "llama.context_length", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon"}) {
    GgufBuilder b = TinyGguf();
    b.Erase(key);
    EXPECT_THAT(ErrorOf(b), HasSubstr(std::string("f: ") + key + ": missing, expected "));
  }
}

TEST(ReadGgufConfig, SizesOutOfRangeAreRefused) {
  for (const char* key : {"llama.block_count", "llama.context_length", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.head_count_kv", "llama.vocab_size"}) {
    for (const uint32_t bad : {0u, ~0u}) {
      GgufBuilder b = TinyGguf();
      b.Uint32(key, bad);
      EXPECT_THAT(ErrorOf(b), HasSubstr(std::string("f: ") + key + ": "));
    }
  }
}

TEST(ReadGgufConfig, HeadCountsMayBeListedWhenEqual) {
  GgufBuilder b = TinyGguf();
  b.Int32s("llama.attention.head_count_kv", {4, 4});
  EXPECT_EQ(Read(b).n_kv_heads, 4);
  b.Int32s("llama.attention.head_count_kv", {4, 2});
  EXPECT_EQ(UnimplementedOf(b),
            "f: llama.attention.head_count_kv: an array of 2 int32, expected what we compute: one "
            "number for all layers, not 4 and 2");
  b.Int32s("llama.attention.head_count_kv", {2});
  EXPECT_THAT(ErrorOf(b), HasSubstr("expected a number, or one for each of 2 layers"));
  b.Int32s("llama.attention.head_count_kv", {0, 0});
  EXPECT_THAT(ErrorOf(b), HasSubstr("expected numbers in 1..1024, not 0"));
  b.Uint32("llama.attention.head_count_kv", 3);
  EXPECT_THAT(ErrorOf(b), HasSubstr("head_count: 4, expected a multiple of head_count_kv 3"));
}

TEST(ReadGgufConfig, HeadDimIsTheKeyLengthAndAllOfItRotates) {
  GgufBuilder b = TinyGguf();
  b.Uint32("llama.attention.key_length", 16);
  EXPECT_THAT(UnimplementedOf(b), HasSubstr("value_length: missing, expected what we compute"));
  b.Uint32("llama.attention.value_length", 16);
  EXPECT_EQ(Read(b).head_dim, 16);
  b.Uint32("llama.rope.dimension_count", 8);
  EXPECT_THAT(UnimplementedOf(b),
              HasSubstr("rope.dimension_count: 8, expected what we compute: the key length 16"));
  b.Uint32("llama.attention.key_length", 7);
  EXPECT_THAT(ErrorOf(b), HasSubstr("key_length: 7, expected an even number in 2..512"));
  b = TinyGguf();
  b.Uint32("llama.attention.head_count", 6);
  EXPECT_THAT(ErrorOf(b), HasSubstr("key_length: missing, expected it where embedding_length 32"));
}

TEST(ReadGgufConfig, VocabularyIsTheKeysOrTheEmbeddings) {
  GgufBuilder b = TinyGguf();
  b.Uint32("llama.vocab_size", 20);
  EXPECT_EQ(Read(b).vocab_size, 20);  // the loader compares it with the embedding
  b.Uint32("llama.vocab_size", 15);
  EXPECT_EQ(ErrorOf(b),
            "f: tokenizer.ggml.tokens: an array of 16 string, expected at most 15, the rows of "
            "token_embd.weight");
  b.Erase("llama.vocab_size");
  b.Zeros("token_embd.weight", {32});
  EXPECT_THAT(ErrorOf(b), HasSubstr("token_embd.weight: shape [32], expected [vocab_size,"));
}

TEST(ReadGgufConfig, EmbeddingsAreTiedWithoutAnOutput) {
  GgufBuilder b = TinyGguf();
  b.EraseTensor("output.weight");
  EXPECT_TRUE(Read(b).tied_embeddings);
  b.Zeros("output.weight", {16, 32});
  b.tensor("output.weight").type = 17;  // one that we do not read is no reason to tie
  EXPECT_FALSE(Read(b).tied_embeddings);
}

TEST(ReadGgufConfig, RopeIsScaledLinearlyOrNot) {
  GgufBuilder b = TinyGguf();
  b.Float32("llama.rope.freq_base", 5e5f);
  b.Float32("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(Read(b).rope_theta, 5e5);
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeLinear{4.0}));
  b.String("llama.rope.scaling.type", "linear");
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeLinear{4.0}));
  b.String("llama.rope.scaling.type", "none");
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeDefault{}));
  b.String("llama.rope.scaling.type", "yarn");
  EXPECT_EQ(UnimplementedOf(b),
            "f: llama.rope.scaling.type: \"yarn\", expected what we compute: none or linear");
  b = TinyGguf();
  b.Float32("llama.rope.scale_linear", 2.0f);
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeLinear{2.0}));
  b.Float32("llama.rope.scaling.factor", 0.0f);
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeLinear{2.0}));
}

TEST(ReadGgufConfig, RopeFactorsDivideLlamasFrequencies) {
  GgufBuilder b = TinyGguf();
  b.Zeros("rope_freqs.weight", {4});
  const float factors[4] = {1, 2, 4, 8};
  b.tensor("rope_freqs.weight").data.assign(reinterpret_cast<const char*>(factors), 16);
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeFactors{{1, 2, 4, 8}}));
  b.Float32("llama.rope.scaling.factor", 2.0f);
  EXPECT_EQ(Read(b).rope_scaling, RopeScaling(RopeFactors{{2, 4, 8, 16}}));
  for (const float bad : {0.0f, -1.0f, HUGE_VALF, std::nanf("")}) {
    b.tensor("rope_freqs.weight").data.replace(0, 4, GgufBuilder::Bytes(bad));
    EXPECT_THAT(ErrorOf(b), HasSubstr("rope_freqs.weight: ")) << bad;
  }
  b.Zeros("rope_freqs.weight", {5});
  EXPECT_EQ(ErrorOf(b), "rope_freqs.weight: F32 of shape [5], expected F32 of shape [4]");
}

TEST(ReadGgufConfig, EndTokensAreEosAndEndOfTurn) {
  GgufBuilder b = TinyGguf();
  b.Uint32("tokenizer.ggml.eot_token_id", 9);
  EXPECT_THAT(Read(b).eos_tokens, ElementsAre(2, 9));
  b.Uint32("tokenizer.ggml.eot_token_id", 2);
  EXPECT_THAT(Read(b).eos_tokens, ElementsAre(2));
  b.Erase("tokenizer.ggml.bos_token_id");
  EXPECT_EQ(Read(b).bos_token, std::nullopt);
  for (const char* name : {"bos", "eos", "eot"}) {
    GgufBuilder bad = TinyGguf();
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    bad.Uint32(key, 16);
    EXPECT_EQ(ErrorOf(bad), "f: " + key + ": 16, expected 0..15");
  }
}

TEST(ReadGgufConfig, SettingsThatWouldChangeTheResultAreUnimplemented) {
  const std::map<std::string, uint32_t> settings = {{"llama.expert_count", 8},
                                                    {"general.quantization_version", 1},
                                                    {"llama.attention.sliding_window", 64}};
  for (const auto& [key, value] : settings) {
    GgufBuilder b = TinyGguf();
    b.Uint32(key, value);
    EXPECT_THAT(UnimplementedOf(b), HasSubstr("f: " + key + ": " + std::to_string(value)));
  }
  GgufBuilder b = TinyGguf();
  b.Bool("llama.attention.causal", false);
  EXPECT_THAT(UnimplementedOf(b), HasSubstr("llama.attention.causal: bool 0"));
  b = TinyGguf();
  b.Uint32("llama.expert_count", 0);
  b.Uint32("general.quantization_version", 2);
  b.Uint32("llama.attention.sliding_window", 128);
  EXPECT_EQ(Read(b).sliding_window, std::nullopt);
}

}  // namespace
}  // namespace lowkey
