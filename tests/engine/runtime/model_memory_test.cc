#include "engine/runtime/model_memory.h"

#include "bench/random_bundle.h"
#include "engine/runtime/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;

// A checkpoint of headers alone, with the sizes of Llama 3 8B.
Checkpoint LargeCheckpoint() {
  Checkpoint c;
  c.config = TinyConfig();
  c.config.vocab_size = 128256;
  c.config.hidden_dim = 4096;
  c.config.ffn_dim = 14336;
  c.config.n_layers = 32;
  c.config.n_heads = 32;
  c.config.n_kv_heads = 8;
  c.config.head_dim = 128;
  c.embedding = c.lm_head = {DType::kBF16, {128256, 4096}};
  LayerTensors layer;
  layer.q_proj = layer.o_proj = {DType::kBF16, {4096, 4096}};
  layer.k_proj = layer.v_proj = {DType::kBF16, {1024, 4096}};
  layer.gate_proj = layer.up_proj = {DType::kBF16, {14336, 4096}};
  layer.down_proj = {DType::kBF16, {4096, 14336}};
  c.layers.assign(32, layer);
  return c;
}

TEST(PredictMemory, WeightsAreWhatAnEngineLoads) {
  const TinyModel model({.config = TinyConfig()});
  for (const auto dtype : {EngineOptions::Dtype::kFloat32, EngineOptions::Dtype::kBFloat16,
                           EngineOptions::Dtype::kInt8}) {
    EngineOptions options;
    options.dtype = dtype;
    options.cache_bytes = int64_t{8} << 20;
    const auto checkpoint = OpenCheckpoint(model.path()).value();
    const ModelMemory memory = PredictMemory(*checkpoint, options);
    const auto engine = CreateEngine(checkpoint, options, nullptr).value();
    EXPECT_EQ(memory.weight_bytes(), engine->Stats().weight_bytes);
    EXPECT_EQ(memory.cache_bytes, options.cache_bytes);
    EXPECT_EQ(memory.total_bytes(), memory.weight_bytes() + memory.step_bytes + memory.cache_bytes);
  }
}

TEST(PredictMemory, CountsWhatABundlesMechanismsLoad) {
  ModelConfig config = TinyConfig();
  config.n_kv_heads = config.n_heads;  // 32 columns: whole panels with every instruction set
  const TinyModel model({.config = config});
  RandomBundleOptions bundle{config, {}, 1};
  bundle.mechanisms = {{.mechanism = Mechanism::kEfficient},
                       {.mechanism = Mechanism::kOptimised},
                       {.mechanism = Mechanism::kTaylorShift, .score_dim = 16}};
  ASSERT_TRUE(WriteRandomBundle(model.path(), bundle).ok());
  EngineOptions options;
  options.cache_bytes = int64_t{8} << 20;
  const auto checkpoint = OpenCheckpoint(model.path()).value();
  ASSERT_EQ(checkpoint->mechanisms.size(), 3u);
  const auto engine = CreateEngine(checkpoint, options, nullptr).value();
  EXPECT_EQ(PredictMemory(*checkpoint, options).weight_bytes(), engine->Stats().weight_bytes);
}

TEST(PredictMemory, AStepsBuffersGrowWithItsRows) {
  const Checkpoint checkpoint = LargeCheckpoint();
  EngineOptions options;
  options.max_batch_tokens = 512;
  const int64_t some = PredictMemory(checkpoint, options).step_bytes;
  options.max_batch_tokens = 1024;
  const int64_t more = PredictMemory(checkpoint, options).step_bytes;
  // x, its norm, the product, gate and up, q, k, v, attention's output and the rotation.
  const int64_t row = 3 * 4096 + 2 * 14336 + (4096 + 1024) + 1024 + 4096 + 128;
  EXPECT_EQ(more - some, 512 * row * 4);
  EXPECT_EQ(some - 512 * row * 4, int64_t{64} * 128256 * 4);
}

TEST(CheckModelFits, SaysWhatIsNeededAndWhatToTry) {
  const Checkpoint checkpoint = LargeCheckpoint();
  EXPECT_TRUE(CheckModelFits(checkpoint, {}, 15 * kGiB).ok());
  const absl::Status narrow = CheckModelFits(checkpoint, {}, 12 * kGiB);
  EXPECT_EQ(narrow.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(narrow.message()),
            "the model needs 14.11 GiB for weights as bfloat16 and a step's buffers, 12.00 GiB of "
            "memory are available; try --dtype int8, which needs 7.34 GiB");
  EXPECT_EQ(std::string(CheckModelFits(checkpoint, {}, 4 * kGiB).message()),
            "the model needs 14.11 GiB for weights as bfloat16 and a step's buffers, 4.00 GiB of "
            "memory are available; try a smaller model, or more memory for this process; --dtype "
            "int8 needs 7.34 GiB");
  EngineOptions options;
  options.dtype = EngineOptions::Dtype::kInt8;
  EXPECT_TRUE(CheckModelFits(checkpoint, options, 8 * kGiB).ok());
  const std::string smallest(CheckModelFits(checkpoint, options, 4 * kGiB).message());
  EXPECT_THAT(smallest, HasSubstr("weights as int8"));
  EXPECT_THAT(smallest, Not(HasSubstr("--dtype")));
}

TEST(CheckModelFits, TheEmbeddingStaysInTheFile) {
  const Checkpoint checkpoint = LargeCheckpoint();
  const ModelMemory memory = PredictMemory(checkpoint, {});
  EXPECT_EQ(memory.embedding_bytes, int64_t{128256} * 4096 * 2);
  EXPECT_TRUE(CheckModelFits(checkpoint, {}, memory.matrix_bytes + memory.step_bytes).ok());
}

}  // namespace
}  // namespace lowkey
