// The forward pass against logits that transformers computed (tests/golden), and the independence
// of a row's logits from everything that shares its steps.
#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "engine/loader/checkpoint.h"
#include "engine/loader/safetensors.h"
#include "engine/runtime/inspect.h"
#include "engine/runtime/model_runner.h"
#include "gtest/gtest.h"
#include "tests/testing/source_path.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

constexpr auto kAuto = EngineOptions::Dtype::kAuto;
constexpr auto kFloat32 = EngineOptions::Dtype::kFloat32;
constexpr auto kBFloat16 = EngineOptions::Dtype::kBFloat16;
constexpr auto kInt8 = EngineOptions::Dtype::kInt8;
constexpr auto kFloat8 = EngineOptions::Dtype::kFloat8;

struct Golden {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // [n_tokens, vocab_size]
};

Golden ReadGolden(const std::string& name) {
  Golden golden;
  const auto file =
      OpenSafetensors(SourcePath("tests/golden/").append(name).append("/expected.safetensors"));
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return golden;
  const TensorView& tokens = file->index.tensors.at("tokens");
  golden.tokens.resize(tokens.size());
  std::memcpy(golden.tokens.data(), tokens.data, tokens.size_bytes());
  const TensorView& logits = file->index.tensors.at("logits");
  golden.logits.resize(logits.size());
  LoadFloats(logits, 0, logits.size(), golden.logits.data());
  return golden;
}

std::string ModelOf(const std::string& name) {
  if (name == "tales") return SourcePath("models/tales");
  return SourcePath("tests/golden/").append(name);
}

std::vector<float> Logits(const std::string& name, const std::vector<int32_t>& tokens,
                          const LogitsOptions& options) {
  auto logits = ComputeLogits(OpenCheckpoint(ModelOf(name)).value(), tokens, options);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *std::move(logits) : std::vector<float>();
}

LogitsOptions Options(EngineOptions::Dtype dtype, int32_t chunk_tokens = 512) {
  LogitsOptions options;
  options.engine.dtype = dtype;
  options.engine.n_threads = 2;
  options.engine.cache_bytes = int64_t{1} << 24;
  options.engine.device = NewTestDevice();
  options.chunk_tokens = chunk_tokens;
  return options;
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (std::isnan(difference)) return HUGE_VAL;
    worst = std::max(worst, difference);
  }
  return worst;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<int32_t> RandomTokens(int64_t n, int32_t vocab_size, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> out(n);
  for (int32_t& t : out) t = static_cast<int32_t>(rng() % vocab_size);
  return out;
}

class GoldenTest : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest,
                         testing::Values("gqa", "tied", "llama3_rope", "linear_rope",
                                         "sliding_window", "bias", "head_dim", "sharded",
                                         "rope_parameters", "smollm2", "qwen2", "qwen2_window",
                                         "qwen3", "gguf_llama", "gguf_qwen2", "gguf_qwen3",
                                         "tales"),
                         [](const auto& info) { return info.param; });

TEST_P(GoldenTest, Float32LogitsMatchTransformers) {
  const Golden golden = ReadGolden(GetParam());
  const std::vector<float> logits = Logits(GetParam(), golden.tokens, Options(kFloat32));
  const double difference = MaxDifference(logits, golden.logits);
  RecordProperty("max_difference", std::to_string(difference));
  EXPECT_LE(difference, 1e-3);
}

TEST_P(GoldenTest, BFloat16LogitsStayClose) {
  const Golden golden = ReadGolden(GetParam());
  const std::vector<float> logits = Logits(GetParam(), golden.tokens, Options(kBFloat16));
  float largest = 0;
  for (float x : golden.logits) largest = std::max(largest, std::fabs(x));
  const double relative = MaxDifference(logits, golden.logits) / largest;
  RecordProperty("relative_difference", std::to_string(relative));
  EXPECT_LE(relative, 0.03);
}

double RootMeanSquare(const std::vector<float>& x) {
  double sum = 0;
  for (float v : x) sum += double{v} * v;
  return std::sqrt(sum / static_cast<double>(x.size()));
}

// Weights of 8 bits, beside the logits of unquantized ones: the noise of 0.006 and 0.026 in each
// weight, about fourfold through a model of random weights, less than once through a trained one.
TEST_P(GoldenTest, NarrowWeightsLogitsStayClose) {
  const Golden golden = ReadGolden(GetParam());
  const double trained = GetParam() == "tales" ? 0.2 : 1;
  for (const auto& [dtype, bound] : {std::pair{kInt8, 0.035}, std::pair{kFloat8, 0.15}}) {
    const LogitsOptions options = Options(dtype);
    if (dtype == kFloat8 && options.engine.device == nullptr) continue;
    std::vector<float> noise = Logits(GetParam(), golden.tokens, options);
    ASSERT_EQ(noise.size(), golden.logits.size());
    for (size_t i = 0; i < noise.size(); ++i) noise[i] -= golden.logits[i];
    EXPECT_LE(RootMeanSquare(noise) / RootMeanSquare(golden.logits), trained * bound);
  }
}

// A GGUF file's blocks stay as they are. What is added is the noise of rows in codes: of 8 bits,
// 0.008 in each number of weights of 4 bits, threefold through a model of random weights.
TEST_P(GoldenTest, KeptWeightsLogitsStayClose) {
  const Golden golden = ReadGolden(GetParam());
  const LogitsOptions options = Options(kAuto);
  std::vector<float> noise = Logits(GetParam(), golden.tokens, options);
  ASSERT_EQ(noise.size(), golden.logits.size());
  for (size_t i = 0; i < noise.size(); ++i) noise[i] -= golden.logits[i];
  EXPECT_LE(RootMeanSquare(noise) / RootMeanSquare(golden.logits), 0.03);
}

TEST(TransformerTest, AutoNamesWhatMostWeightsAreHeldAs) {
  const auto name = [](const std::string& model, EngineOptions::Dtype dtype) {
    EngineOptions options = Options(dtype).engine;
    options.device = nullptr;
    return ModelRunner::Create(OpenCheckpoint(ModelOf(model)).value(), options, nullptr)
        .value()
        ->weights_name();
  };
  EXPECT_EQ(name("gguf_llama", kAuto), "Q4_1");
  EXPECT_EQ(name("gguf_llama", kBFloat16), "bfloat16");
  EXPECT_EQ(name("gguf_llama", kInt8), "int8");
  EXPECT_EQ(name("gqa", kAuto), "float32");
}

TEST(TransformerTest, Float8OnTheCpuIsRefused) {
  LogitsOptions options = Options(kFloat8);
  options.engine.device = nullptr;
  const std::vector<int32_t> tokens = {1};
  const absl::Status refused =
      ComputeLogits(OpenCheckpoint(ModelOf("gqa")).value(), tokens, options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("dtype: float8 on the CPU, expected float32, bfloat16 or int8"),
            std::string::npos)
      << refused;
}

TEST_P(GoldenTest, ChunksOfAnySizeGiveTheSameBits) {
  const Golden golden = ReadGolden(GetParam());
  for (EngineOptions::Dtype dtype : {kAuto, kFloat32, kBFloat16, kInt8}) {
    const std::vector<float> at_once = Logits(GetParam(), golden.tokens, Options(dtype));
    for (int32_t chunk : {7, 1}) {
      EXPECT_TRUE(SameBits(Logits(GetParam(), golden.tokens, Options(dtype, chunk)), at_once))
          << "chunks of " << chunk;
    }
  }
}

// ------------------------------------------------------------------ company

struct RunnerCase {
  std::string name;
  EngineOptions::Dtype dtype;
};

class CompanyTest : public testing::TestWithParam<RunnerCase> {
 protected:
  void SetUp() override {
    EngineOptions options = Options(GetParam().dtype).engine;
    options.max_batch_tokens = 128;
    auto runner =
        ModelRunner::Create(OpenCheckpoint(ModelOf(GetParam().name)).value(), options, nullptr);
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
  }

  // The last row's logits of the first of `rows`.
  std::vector<float> Step(const std::vector<ModelRunner::Rows>& rows) {
    EXPECT_TRUE(runner_->Step(rows).ok());
    std::vector<float> out;
    const int64_t last = static_cast<int64_t>(rows[0].tokens.size()) - 1;
    EXPECT_TRUE(runner_
                    ->Logits({&last, 1},
                             [&](size_t, absl::Span<const float> logits) {
                               out.assign(logits.begin(), logits.end());
                             })
                    .ok());
    return out;
  }

  std::unique_ptr<ModelRunner> runner_;
};

INSTANTIATE_TEST_SUITE_P(Models, CompanyTest,
                         testing::Values(RunnerCase{"gqa", kFloat32}, RunnerCase{"gqa", kBFloat16},
                                         RunnerCase{"gqa", kInt8},
                                         RunnerCase{"head_dim", kBFloat16},
                                         RunnerCase{"tales", kBFloat16}),
                         [](const auto& info) {
                           const auto dtype = info.param.dtype;
                           return info.param.name + (dtype == kFloat32    ? "_fp32"
                                                     : dtype == kBFloat16 ? "_bf16"
                                                                          : "_int8");
                         });

TEST_P(CompanyTest, RowsLogitsDoNotDependOnOtherRows) {
  const int32_t vocab = runner_->config().vocab_size;
  const std::vector<int32_t> tokens = RandomTokens(30, vocab, 1);
  const auto rest = absl::MakeConstSpan(tokens);
  SequenceCache alone;
  alone.n_prompt_tokens = 20;
  std::vector<std::vector<float>> expected = {Step({{&alone, 0, rest.first(20)}})};
  for (int64_t at = 20; at < 30; ++at) {
    expected.push_back(Step({{&alone, at, rest.subspan(at, 1)}}));
  }
  for (int64_t n_others : {1, 2, 3, 5, 9, 20, 40}) {
    SequenceCache sequence;
    sequence.n_prompt_tokens = 20;
    std::vector<SequenceCache> others(n_others);
    const std::vector<int32_t> noise = RandomTokens(128, vocab, 2);
    std::vector<ModelRunner::Rows> rows = {{&sequence, 0, rest.first(20)}};
    for (SequenceCache& o : others) {
      rows.push_back({&o, 0, absl::MakeConstSpan(noise).first(1 + n_others % 2)});
    }
    EXPECT_TRUE(SameBits(Step(rows), expected[0])) << n_others << " others";
    for (int64_t at = 20; at < 30; ++at) {
      rows = {{&sequence, at, rest.subspan(at, 1)}};
      for (SequenceCache& o : others) {
        rows.push_back({&o, o.n_tokens, absl::MakeConstSpan(noise).subspan(at, 1)});
      }
      EXPECT_TRUE(SameBits(Step(rows), expected[at - 19])) << n_others << " others";
    }
  }
}

TEST_P(CompanyTest, MechanismsShareAStepWithoutChangingEachOther) {
  const std::vector<int32_t> tokens = RandomTokens(100, runner_->config().vocab_size, 3);
  const auto all = absl::MakeConstSpan(tokens);
  AttentionOptions atp;
  atp.mechanism = Mechanism::kAtp;
  atp.atp.block_tokens = 64, atp.atp.window_blocks = 0;
  atp.atp.prefill = AtpPrefill::kCompressed;
  SequenceCache standard_alone, standard, atp_alone, other;
  atp_alone.options = other.options = atp;
  const std::vector<float> expected = Step({{&standard_alone, 0, all.first(60)}});
  const std::vector<float> atp_expected = Step({{&atp_alone, 0, all}});
  EXPECT_TRUE(
      SameBits(Step({{&standard, 0, all.first(60)}, {&other, 0, all.first(64)}}), expected));
  EXPECT_TRUE(SameBits(Step({{&other, 64, all.subspan(64)}, {&standard, 60, all.subspan(60, 9)}}),
                       atp_expected));
}

TEST(AtpModel, ExactPrefillHasStandardsBits) {
  const std::vector<int32_t> tokens = RandomTokens(128, 128, 4);
  LogitsOptions atp = Options(kFloat32);
  atp.attention.mechanism = Mechanism::kAtp;
  atp.attention.atp.block_tokens = 64, atp.attention.atp.window_blocks = 0;
  EXPECT_TRUE(SameBits(Logits("gqa", tokens, atp), Logits("gqa", tokens, Options(kFloat32))));
}

// Tokens behind the prompt, which its blocks are compressed for, are given one by one.
TEST(AtpModel, LogitsBehindAPromptAreThoseOfGeneratedTokens) {
  const std::vector<int32_t> tokens = RandomTokens(128, 128, 6);
  const auto behind = [&](LogitsOptions options) {
    options.n_prompt_tokens = 118;
    return Logits("gqa", tokens, options);
  };
  const std::vector<float> all = Logits("gqa", tokens, Options(kFloat32));
  const std::vector<float> exact = behind(Options(kFloat32));
  EXPECT_TRUE(SameBits(exact, {all.end() - static_cast<int64_t>(exact.size()), all.end()}));
  EXPECT_EQ(exact.size() * 128, all.size() * 10);
  LogitsOptions atp = Options(kFloat32, 64);
  atp.attention.mechanism = Mechanism::kAtp;
  atp.attention.atp = {RankFixed{4}, AtpBasis::kLayer, AtpPrefill::kExact, 64, 4, 0};
  const std::vector<float> low = behind(atp);
  ASSERT_EQ(low.size(), exact.size());
  EXPECT_FALSE(SameBits(low, exact));
  atp.chunk_tokens = 7;
  EXPECT_TRUE(SameBits(behind(atp), low));
  for (const int64_t n_prompt_tokens : {-1, 128, 129}) {
    atp.n_prompt_tokens = n_prompt_tokens;
    EXPECT_EQ(ComputeLogits(OpenCheckpoint(ModelOf("gqa")).value(), tokens, atp).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(AtpModel, CompressedChunksGiveTheSameBits) {
  const std::vector<int32_t> tokens = RandomTokens(128, 128, 5);
  for (EngineOptions::Dtype dtype : {kFloat32, kBFloat16}) {
    std::vector<std::vector<float>> logits;
    for (int32_t chunk : {512, 50, 7, 1}) {
      LogitsOptions atp = Options(dtype, chunk);
      atp.attention.mechanism = Mechanism::kAtp;
      atp.attention.atp = {RankFixed{4}, AtpBasis::kLayer, AtpPrefill::kCompressed, 64, 4, 0};
      logits.push_back(Logits("gqa", tokens, atp));
      EXPECT_TRUE(SameBits(logits.back(), logits.front())) << "chunks of " << chunk;
    }
    EXPECT_FALSE(SameBits(logits[0], Logits("gqa", tokens, Options(dtype))));
  }
}

TEST(Transformer, ReportsItsGeometryAndBytes) {
  const auto checkpoint = OpenCheckpoint(ModelOf("sliding_window"));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ThreadPool pool(1);
  std::vector<int64_t> progress;
  DecoderOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_LE(done, total);
    progress.push_back(done);
  };
  const auto model = Transformer::Load(*checkpoint, options, pool);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), (*checkpoint)->file_bytes);
  const AttentionGeometry g = GeometryOf((*model)->config(), StorageType::kBFloat16);
  EXPECT_EQ(g.sliding_window, 16);
  EXPECT_EQ(g.n_heads, (*checkpoint)->config.n_heads);
  EXPECT_EQ(g.cache_type, StorageType::kBFloat16);
  EXPECT_GE((*model)->weight_bytes(), 4 * (*checkpoint)->n_parameters / 2);
}

}  // namespace
}  // namespace lowkey
