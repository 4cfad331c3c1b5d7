#include "engine/loader/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/loader/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/source_path.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// A tiny checkpoint whose tensors a test may edit before it is written again.
class EditableModel {
 public:
  explicit EditableModel(const ModelConfig& config = TinyConfig())
      : model_({.config = config, .dtype = DType::kF32, .seed = 1}) {
    const auto file = OpenSafetensors(model_.File("model.safetensors"));
    EXPECT_TRUE(file.ok()) << file.status();
    for (const auto& [name, view] : file->index.tensors) {
      Tensor& t = tensors[name];
      t.dtype = view.dtype;
      t.shape = view.shape;
      t.bytes.assign(view.data, view.data + view.size_bytes());
    }
  }

  struct Tensor {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor> tensors;

  const TinyModel& model() const { return model_; }

  // Writes the tensors that `wanted` holds for (all of them by default) into `name`.
  void Write(const std::string& name = "model.safetensors",
             const std::function<bool(const std::string&)>& wanted = nullptr) const {
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [tensor, t] : tensors) {
      if (wanted == nullptr || wanted(tensor)) {
        views.push_back({tensor, {t.dtype, t.shape, t.bytes.data()}});
      }
    }
    EXPECT_TRUE(WriteSafetensors(model_.File(name), views).ok());
  }

  // Writes a zero tensor of this shape.
  void Set(const std::string& name, DType dtype, std::vector<int64_t> shape) {
    Tensor& t = tensors[name];
    t.dtype = dtype;
    t.shape = std::move(shape);
    t.bytes.assign(TensorView{dtype, t.shape, nullptr}.size_bytes(), std::byte{0});
  }

  std::string Error(absl::StatusCode code = absl::StatusCode::kInvalidArgument) const {
    const auto checkpoint = OpenCheckpoint(model_.path());
    EXPECT_EQ(checkpoint.status().code(), code) << checkpoint.status();
    return std::string(checkpoint.status().message());
  }

 private:
  TinyModel model_;
};

TEST(OpenCheckpoint, FindsEveryTensorOfATinyModel) {
  const TinyModel model;
  const auto opened = OpenCheckpoint(model.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.config.n_layers, 2);
  ASSERT_EQ(checkpoint.layers.size(), 2u);
  EXPECT_EQ(checkpoint.embedding.shape, (std::vector<int64_t>{96, 32}));
  EXPECT_EQ(checkpoint.layers[1].k_proj.shape, (std::vector<int64_t>{16, 32}));
  EXPECT_EQ(checkpoint.layers[1].down_proj.shape, (std::vector<int64_t>{32, 48}));
  EXPECT_EQ(checkpoint.layers[0].q_bias.data, nullptr);
  EXPECT_NE(checkpoint.lm_head.data, checkpoint.embedding.data);
  const int64_t layer = 2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32;
  EXPECT_EQ(checkpoint.n_parameters, 2 * 96 * 32 + 32 + 2 * layer);
  EXPECT_GT(checkpoint.file_bytes, checkpoint.n_parameters * 4);
}

TEST(OpenCheckpoint, TiedHeadIsTheEmbeddingAndAStoredOneIsIgnored) {
  ModelConfig config = TinyConfig();
  config.tied_embeddings = true;
  EditableModel model(config);
  const auto tied = OpenCheckpoint(model.model().path());
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_EQ((*tied)->lm_head.data, (*tied)->embedding.data);
  model.Set("lm_head.weight", DType::kF32, {96, 32});
  model.Write();
  const auto stored = OpenCheckpoint(model.model().path());
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ((*stored)->lm_head.data, (*stored)->embedding.data);
  EXPECT_EQ((*stored)->n_parameters, (*tied)->n_parameters);
}

TEST(OpenCheckpoint, BiasesAreFoundWhereTheConfigAsksForThem) {
  ModelConfig config = TinyConfig();
  config.attention_bias = config.mlp_bias = true;
  const TinyModel model({.config = config, .dtype = DType::kF16});
  const auto opened = OpenCheckpoint(model.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const LayerTensors& layer = (*opened)->layers[1];
  EXPECT_EQ(layer.q_bias.shape, std::vector<int64_t>{32});
  EXPECT_EQ(layer.v_bias.shape, std::vector<int64_t>{16});
  EXPECT_EQ(layer.up_bias.shape, std::vector<int64_t>{48});
  EXPECT_EQ(layer.down_bias.shape, std::vector<int64_t>{32});
}

TEST(OpenCheckpoint, MissingDirectoryOrFilesAreNotFound) {
  const TempDirectory directory;
  const auto code = [](const std::string& path) { return OpenCheckpoint(path).status().code(); };
  EXPECT_EQ(code(directory.File("absent")), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(directory.path()), absl::StatusCode::kNotFound);  // no config.json
  WriteFileOrDie(directory.File("config.json"), ConfigJson(TinyConfig()));
  EXPECT_EQ(code(directory.File("config.json")), absl::StatusCode::kNotFound);
  const absl::Status status = OpenCheckpoint(directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no model.safetensors and no model.safetensors.index.json"));
}

TEST(OpenCheckpoint, MissingTensorIsNamedWithItsShape) {
  EditableModel model;
  model.tensors.erase("model.layers.1.self_attn.k_proj.weight");
  model.Write();
  EXPECT_EQ(model.Error(),
            "model.safetensors: model.layers.1.self_attn.k_proj.weight: missing, expected a tensor "
            "of shape [16, 32]");
}

TEST(OpenCheckpoint, MisshapenTensorIsNamedWithBothShapes) {
  EditableModel model;
  model.Set("model.layers.0.self_attn.q_proj.weight", DType::kF32, {32, 31});
  model.Write();
  EXPECT_EQ(model.Error(),
            "model.safetensors: model.layers.0.self_attn.q_proj.weight: shape [32, 31], expected "
            "[32, 32]");
}

TEST(OpenCheckpoint, TransposedTensorOfEqualSizeIsMisshapen) {
  EditableModel model;
  model.Set("model.layers.0.mlp.down_proj.weight", DType::kF32, {48, 32});
  model.Write();
  EXPECT_THAT(model.Error(), HasSubstr("shape [48, 32], expected [32, 48]"));
}

TEST(OpenCheckpoint, IntegerWeightsAreRefused) {
  EditableModel model;
  model.Set("model.norm.weight", DType::kI32, {32});
  model.Write();
  EXPECT_EQ(model.Error(),
            "model.safetensors: model.norm.weight: dtype I32, expected F32, F16 or BF16");
}

TEST(OpenCheckpoint, ExtraTensorsThatWouldMatterAreRefused) {
  EditableModel biased;
  biased.Set("model.layers.0.self_attn.q_proj.bias", DType::kF32, {32});
  biased.Write();
  EXPECT_EQ(biased.Error(),
            "model.safetensors: model.layers.0.self_attn.q_proj.bias: a tensor of shape [32], "
            "expected none: LlamaForCausalLM with this config.json has no such weight");
  EditableModel deeper;
  deeper.Set("model.layers.2.input_layernorm.weight", DType::kF32, {32});
  deeper.Write();
  EXPECT_THAT(deeper.Error(), HasSubstr("model.layers.2.input_layernorm.weight"));
}

TEST(OpenCheckpoint, RotaryTablesAreIgnored) {
  EditableModel model;
  model.Set("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {4});
  model.Set("model.rotary_emb.inv_freq", DType::kI64, {4});
  model.Write();
  EXPECT_TRUE(OpenCheckpoint(model.model().path()).ok());
}

TEST(OpenCheckpoint, MoreLayersThanTensorsIsAMissingTensor) {
  EditableModel model;
  ModelConfig config = TinyConfig();
  config.n_layers = 512;
  WriteFileOrDie(model.model().File("config.json"), ConfigJson(config));
  EXPECT_THAT(model.Error(), HasSubstr("model.layers.2.self_attn.q_proj.weight: missing"));
}

TEST(OpenCheckpoint, LargestSizesInTheConfigAllocateNothing) {
  EditableModel model;
  ModelConfig config = TinyConfig();
  config.vocab_size = 1 << 20, config.hidden_dim = 65536, config.ffn_dim = 1 << 18;
  config.n_layers = 512, config.n_heads = config.n_kv_heads = 1024, config.head_dim = 512;
  WriteFileOrDie(model.model().File("config.json"), ConfigJson(config));
  EXPECT_THAT(model.Error(), HasSubstr("shape [96, 32], expected [1048576, 65536]"));
}

TEST(OpenCheckpoint, GenerationConfigIsRead) {
  const TinyModel model;
  WriteFileOrDie(model.File("generation_config.json"), R"({"eos_token_id": [9, 10]})");
  EXPECT_EQ((*OpenCheckpoint(model.path()))->config.eos_tokens, (std::vector<int32_t>{9, 10}));
  WriteFileOrDie(model.File("generation_config.json"), "{");
  EXPECT_THAT(std::string(OpenCheckpoint(model.path()).status().message()),
              HasSubstr("generation_config.json: not JSON at line 1, column 2: "));
}

TEST(OpenCheckpoint, OversizedConfigIsRefusedUnread) {
  const TinyModel model;
  WriteFileOrDie(model.File("config.json"), std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(OpenCheckpoint(model.path()).status().message(),
            "config.json: 1048577 bytes, expected at most 1048576");
}

class ShardedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove(model_.model().File("model.safetensors"));
    model_.Write("a.safetensors", [](const std::string& name) { return name[0] == 'l'; });
    model_.Write("b.safetensors", [](const std::string& name) { return name[0] != 'l'; });
    for (const auto& [name, tensor] : model_.tensors) {
      map_[name] = name[0] == 'l' ? "a.safetensors" : "b.safetensors";
    }
  }

  void WriteIndex() const {
    std::string text = "{\"metadata\": {\"total_size\": 1}, \"weight_map\": {";
    const char* separator = "";
    for (const auto& [name, file] : map_) {
      absl::StrAppend(&text, separator, "\"", name, "\": \"", file, "\"");
      separator = ", ";
    }
    WriteFileOrDie(model_.model().File("model.safetensors.index.json"), text + "}}");
  }

  EditableModel model_;
  std::map<std::string, std::string> map_;
};

TEST_F(ShardedModel, OpensBothShards) {
  WriteIndex();
  const auto opened = OpenCheckpoint(model_.model().path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->files.size(), 2u);
}

TEST_F(ShardedModel, TensorInAnotherShardThanTheIndexSaysIsMissing) {
  map_["lm_head.weight"] = "b.safetensors";
  WriteIndex();
  EXPECT_EQ(model_.Error(),
            "b.safetensors: lm_head.weight: missing, expected here by "
            "model.safetensors.index.json");
}

TEST_F(ShardedModel, TensorThatTheIndexForgetsIsMissing) {
  map_.erase("lm_head.weight");
  WriteIndex();
  EXPECT_THAT(model_.Error(), HasSubstr("model.safetensors.index.json: lm_head.weight: missing"));
}

TEST_F(ShardedModel, NamesThatLeaveTheDirectoryAreRefused) {
  for (const char* name : {"../a.safetensors", "/etc/passwd", "x/a.safetensors", "..", ".", "",
                           "a.safetensors\\u0000"}) {
    map_["lm_head.weight"] = name;
    WriteIndex();
    EXPECT_THAT(model_.Error(), HasSubstr("expected the name of a file in this directory")) << name;
  }
}

TEST_F(ShardedModel, MissingShardIsNotFound) {
  map_["lm_head.weight"] = "c.safetensors";
  WriteIndex();
  EXPECT_THAT(model_.Error(absl::StatusCode::kNotFound), HasSubstr("c.safetensors"));
}

TEST_F(ShardedModel, IndexWithoutAMapIsRefused) {
  const std::string path = model_.model().File("model.safetensors.index.json");
  for (const char* text :
       {"{}", "{\"weight_map\": []}", "{\"weight_map\": {\"a\": 3}}", "[]", ""}) {
    WriteFileOrDie(path, text);
    EXPECT_THAT(model_.Error(), HasSubstr("model.safetensors.index.json: ")) << text;
  }
}

class GgufCheckpoint : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(const GgufBuilder& builder) {
    WriteFileOrDie(directory_.File("m.gguf"), builder.Build());
    return OpenCheckpoint(directory_.path());
  }
  std::string Error(const GgufBuilder& builder) {
    return std::string(Open(builder).status().message());
  }

  TempDirectory directory_;
};

TEST_F(GgufCheckpoint, LlamasQueriesAndKeysAreInterleaved) {
  const auto opened = Open(TinyGguf());
  ASSERT_TRUE(opened.ok()) << opened.status();
  const Checkpoint& checkpoint = **opened;
  EXPECT_EQ(checkpoint.layers.size(), 2u);
  EXPECT_EQ(checkpoint.layers[1].q_proj.interleaved_rows, 8);
  EXPECT_EQ(checkpoint.layers[1].k_proj.interleaved_rows, 8);
  EXPECT_EQ(checkpoint.layers[1].v_proj.interleaved_rows, 0);
  EXPECT_EQ(checkpoint.layers[0].down_proj.shape, (std::vector<int64_t>{32, 64}));
  const int64_t layer = 2 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32;
  EXPECT_EQ(checkpoint.n_parameters, 2 * 16 * 32 + 32 + 2 * layer);
  EXPECT_TRUE(OpenCheckpoint(directory_.File("m.gguf")).ok());
}

TEST_F(GgufCheckpoint, TiedHeadIsTheEmbedding) {
  GgufBuilder b = TinyGguf();
  b.EraseTensor("output.weight");
  const auto opened = Open(b);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->lm_head.data, (*opened)->embedding.data);
}

TEST_F(GgufCheckpoint, TensorsThatDoNotFitTheMetadataAreNamed) {
  GgufBuilder b = TinyGguf();
  b.EraseTensor("blk.1.ffn_up.weight");
  EXPECT_EQ(Error(b), "m.gguf: blk.1.ffn_up.weight: missing, expected a tensor of shape [64, 32]");
  b = TinyGguf();
  b.Uint32("llama.vocab_size", 17);
  EXPECT_EQ(Error(b), "m.gguf: token_embd.weight: shape [16, 32], expected [17, 32]");
  b = TinyGguf();
  b.Uint32("llama.block_count", 512);
  EXPECT_THAT(Error(b), HasSubstr("blk.2.attn_q.weight: missing"));
}

TEST_F(GgufCheckpoint, TensorsThatWeWouldNotUseAreRefused) {
  GgufBuilder b = TinyGguf();
  b.Zeros("blk.0.attn_q.bias", {32});
  EXPECT_EQ(Error(b),
            "m.gguf: blk.0.attn_q.bias: a tensor of shape [32], expected none: LlamaForCausalLM in "
            "GGUF has no such weight");
  b = TinyGguf();
  b.Zeros("rope_factors_long.weight", {4});
  EXPECT_THAT(Error(b), HasSubstr("rope_factors_long.weight: a tensor"));
}

TEST_F(GgufCheckpoint, LargestSizesInTheMetadataAllocateNothing) {
  GgufBuilder b = TinyGguf();
  b.Uint32("llama.vocab_size", 1 << 20);
  b.Uint32("llama.block_count", 512);
  b.Uint32("llama.embedding_length", 65536);
  b.Uint32("llama.feed_forward_length", 1 << 18);
  b.Uint32("llama.attention.key_length", 512);
  b.Uint32("llama.attention.value_length", 512);
  EXPECT_THAT(Error(b), HasSubstr("shape [16, 32], expected [1048576, 65536]"));
}

// Real checkpoints, as transformers and converters write them.
class GoldenCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenCheckpoint, Opens) {
  const std::string path = SourcePath(GetParam());
  const auto opened = OpenCheckpoint(path);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->layers.size(), static_cast<size_t>((*opened)->config.n_layers));
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenCheckpoint,
                         ::testing::Values("tests/golden/bias", "tests/golden/gguf_llama",
                                           "tests/golden/gguf_qwen2",
                                           "tests/golden/gguf_qwen3/model.gguf",
                                           "tests/golden/qwen2", "tests/golden/qwen3",
                                           "tests/golden/gqa", "tests/golden/head_dim",
                                           "tests/golden/linear_rope", "tests/golden/llama3_rope",
                                           "tests/golden/rope_parameters", "tests/golden/sharded",
                                           "tests/golden/sliding_window", "tests/golden/tied"));

TEST(GoldenCheckpointSettings, AreThoseOfTheirConfigs) {
  const auto config = [](const char* name) {
    return (*OpenCheckpoint(SourcePath("tests/golden/").append(name)))->config;
  };
  EXPECT_TRUE(config("bias").attention_bias);
  EXPECT_TRUE(config("tied").tied_embeddings);
  EXPECT_EQ(config("sliding_window").sliding_window, 16);
  EXPECT_TRUE(std::holds_alternative<RopeLlama3>(config("llama3_rope").rope_scaling));
  EXPECT_EQ(config("linear_rope").rope_scaling, RopeScaling(RopeLinear{4.0}));
}

}  // namespace
}  // namespace lowkey
