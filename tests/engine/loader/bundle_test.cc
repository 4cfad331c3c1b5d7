#include "engine/loader/bundle.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/random_bundle.h"
#include "engine/loader/checkpoint.h"
#include "engine/loader/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class BundleTest : public testing::Test {
 protected:
  absl::Status Open() {
    auto checkpoint = OpenCheckpoint(model_.path());
    if (!checkpoint.ok()) return checkpoint.status();
    checkpoint_ = *checkpoint;
    return absl::OkStatus();
  }
  // The message of a lowkey.json that must be refused.
  std::string Refusal(const std::string& json) {
    WriteFileOrDie(model_.File("lowkey.json"), json);
    const absl::Status status = Open();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  }
  std::string EntryRefusal(const std::string& entry) {
    return Refusal("{\"format\": 1, \"mechanisms\": [" + entry + "]}");
  }
  // A file of zeros.
  void WriteZeros(const std::string& name,
                  const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [tensor, shape] : tensors) {
      TensorView view;
      view.shape = shape;
      view.data = reinterpret_cast<const std::byte*>(zeros_.data());
      views.emplace_back(tensor, view);
    }
    ASSERT_TRUE(WriteSafetensors(model_.File(name), views).ok());
  }

  const TinyModel model_;
  const std::vector<float> zeros_ = std::vector<float>(4096);
  std::shared_ptr<const Checkpoint> checkpoint_;
};

TEST_F(BundleTest, IsOptional) {
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(checkpoint_->mechanisms.empty());
}

TEST_F(BundleTest, ReadsEveryKindOfMechanism) {
  RandomBundleOptions options{TinyConfig(), {}, 1};
  options.mechanisms = {
      {.mechanism = Mechanism::kAtp, .lora_rank = 2},
      {.mechanism = Mechanism::kOptimised, .n_heads = 4, .n_kv_heads = 2},
      {.mechanism = Mechanism::kEfficient, .n_heads = 1},
      {.mechanism = Mechanism::kSuper, .over = Mechanism::kStandard, .alignment_tokens = 20},
      {.mechanism = Mechanism::kLasso, .lasso = {LassoForm::kVanilla, 0.25f, 2.0f, 3, 5.0f, 7, 11}},
      {.mechanism = Mechanism::kTaylorShift}};
  ASSERT_TRUE(WriteRandomBundle(model_.path(), options).ok());
  ASSERT_TRUE(Open().ok()) << Open();
  const auto& m = checkpoint_->mechanisms;
  ASSERT_EQ(m.size(), 6u);
  EXPECT_EQ(m[0].layers[1].projections[0].a.shape, std::vector<int64_t>({2, 32}));
  EXPECT_EQ(m[0].layers[1].projections[1].b.shape, std::vector<int64_t>({16, 2}));
  EXPECT_TRUE(m[0].has_own_projections);
  EXPECT_EQ(m[1].config.n_kv_heads, 2);
  EXPECT_EQ(m[1].layers[0].projections[1].full.shape, std::vector<int64_t>({16, 32}));
  EXPECT_EQ(m[2].config.head_dim, 32);
  EXPECT_EQ(m[2].layers[0].projections[2].full.data, nullptr);
  EXPECT_EQ(m[3].over, Mechanism::kStandard);
  EXPECT_EQ(m[3].layers[1].alignment.size(), 210);
  EXPECT_EQ(m[3].config.head_dim, 8);
  EXPECT_EQ(m[4].lasso.form, LassoForm::kVanilla);
  EXPECT_EQ(m[4].lasso.rho, 2.0f);
  EXPECT_EQ(m[4].lasso.iterations, 3);
  EXPECT_EQ(m[4].lasso.power, 7);
  EXPECT_EQ(m[4].lasso.extra_tokens, 11);
  EXPECT_EQ(m[5].layers[1].tau.shape, std::vector<int64_t>({4}));
}

// The checkpoint's own set has fewer KV heads than the slices, and values that are none.
TEST_F(BundleTest, SlicesHaveASetOfWeightsOfTheirOwn) {
  WriteZeros("w.safetensors", {{"layers.0.wa", {10}}, {"layers.1.wa", {10}}});
  for (const bool slices : {true, false}) {
    WriteFileOrDie(model_.File("lowkey.json"),
                   std::string(R"({"format": 1, "mechanisms": [{"name": "super", )") +
                       (slices ? "" : R"("over": "standard", )") +
                       R"("alignment_tokens": 4, "weights": "w.safetensors"}]})");
    ASSERT_TRUE(Open().ok()) << Open();
    EXPECT_EQ(checkpoint_->mechanisms[0].has_own_projections, slices);
  }
}

TEST_F(BundleTest, TaylorShiftMayHaveNarrowScoresAndAWindow) {
  RandomBundleOptions options{TinyConfig(), {}, 1};
  options.mechanisms = {{.mechanism = Mechanism::kTaylorShift,
                         .n_kv_heads = 4,
                         .score_dim = 4,
                         .window_tokens = 128,
                         .variant = TaylorVariant::kPlain}};
  ASSERT_TRUE(WriteRandomBundle(model_.path(), options).ok());
  ASSERT_TRUE(Open().ok()) << Open();
  const BundledMechanism& m = checkpoint_->mechanisms[0];
  EXPECT_EQ(m.config.score_dim, 4);
  EXPECT_EQ(m.config.key_dim(), 4);
  EXPECT_EQ(m.config.head_dim, 8);
  EXPECT_EQ(m.config.n_kv_heads, 4);
  EXPECT_EQ(m.window_tokens, 128);
  EXPECT_EQ(m.variant, TaylorVariant::kPlain);
  const auto shape_of = [&](Projection p) {
    return m.layers[1].projections[static_cast<size_t>(p)].full.shape;
  };
  EXPECT_EQ(shape_of(Projection::kQ), std::vector<int64_t>({16, 32}));
  EXPECT_EQ(shape_of(Projection::kK), std::vector<int64_t>({16, 32}));
  EXPECT_EQ(shape_of(Projection::kV), std::vector<int64_t>({32, 32}));
  EXPECT_EQ(shape_of(Projection::kO), std::vector<int64_t>({32, 32}));
  EXPECT_EQ(m.layers[1].tau_window.shape, std::vector<int64_t>({4}));
}

TEST_F(BundleTest, NarrowScoresNeedQueriesAndKeysOfTheirOwn) {
  const std::string entry =
      R"({"name": "taylorshift", "score_dim": 4, "weights": "w.safetensors"})";
  EXPECT_THAT(EntryRefusal(R"({"name": "taylorshift", "score_dim": 4})"),
              HasSubstr("layers.0.wq: missing"));
  WriteZeros("w.safetensors", {{"layers.0.wq.lora_a", {2, 32}}, {"layers.0.wq.lora_b", {16, 2}}});
  EXPECT_THAT(EntryRefusal(entry), HasSubstr("layers.0.wq: missing"));
  WriteZeros("w.safetensors", {{"layers.0.wq", {16, 32}}});
  EXPECT_THAT(EntryRefusal(entry), HasSubstr("layers.0.wk: missing"));
  WriteZeros("w.safetensors", {{"layers.0.wq", {32, 32}}});
  EXPECT_THAT(EntryRefusal(entry), HasSubstr("layers.0.wq: shape [32, 32], expected [16, 32]"));
  // Values and outputs may stay the checkpoint's.
  WriteZeros("w.safetensors", {{"layers.0.wq", {16, 32}},
                               {"layers.0.wk", {8, 32}},
                               {"layers.1.wq", {16, 32}},
                               {"layers.1.wk", {8, 32}}});
  WriteFileOrDie(model_.File("lowkey.json"), "{\"format\": 1, \"mechanisms\": [" + entry + "]}");
  ASSERT_TRUE(Open().ok()) << Open();
  EXPECT_EQ(checkpoint_->mechanisms[0].layers[0].projections[2].full.data, nullptr);
}

// The checkpoint's biases and norms are as wide as its own heads.
TEST_F(BundleTest, OtherHeadsLeaveBiasesAndNormsOut) {
  ModelConfig config = TinyConfig();
  config.attention_bias = config.output_bias = true;
  for (const auto& [score_dim, n_kv_heads] : {std::pair(4, 0), std::pair(0, 1), std::pair(0, 4)}) {
    const TinyModel model({.config = config, .dtype = DType::kF32, .seed = 1});
    RandomBundleOptions options{config, {}, 1};
    options.mechanisms = {
        {.mechanism = Mechanism::kTaylorShift, .n_kv_heads = n_kv_heads, .score_dim = score_dim}};
    ASSERT_TRUE(WriteRandomBundle(model.path(), options).ok());
    const auto checkpoint = OpenCheckpoint(model.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE((*checkpoint)->config.attention_bias);
    EXPECT_FALSE((*checkpoint)->mechanisms[0].config.attention_bias);
    EXPECT_FALSE((*checkpoint)->mechanisms[0].config.qk_norm);
  }
}

TEST_F(BundleTest, AScoreDimOfTheHeadsOwnSizeIsNone) {
  WriteZeros("w.safetensors", {{"layers.0.tau", {4}}, {"layers.1.tau", {4}}});
  WriteFileOrDie(model_.File("lowkey.json"),
                 R"({"format": 1, "mechanisms": [{"name": "taylorshift", "score_dim": 8,
                     "weights": "w.safetensors"}]})");
  ASSERT_TRUE(Open().ok()) << Open();
  EXPECT_EQ(checkpoint_->mechanisms[0].config.score_dim, std::nullopt);
  EXPECT_FALSE(checkpoint_->mechanisms[0].has_own_projections);
}

TEST_F(BundleTest, RefusesBadFieldsOfTaylorShift) {
  const auto refusal = [&](const std::string& fields) {
    return EntryRefusal(R"({"name": "taylorshift", )" + fields + "}");
  };
  EXPECT_THAT(refusal(R"("score_dim": 0)"), HasSubstr("score_dim: 0, expected"));
  EXPECT_THAT(refusal(R"("score_dim": 5)"), HasSubstr("score_dim: 5, expected an even number"));
  EXPECT_THAT(refusal(R"("score_dim": 514)"), HasSubstr("score_dim: 514"));
  EXPECT_THAT(refusal(R"("score_dim": "8")"), HasSubstr("score_dim"));
  EXPECT_THAT(refusal(R"("score_dim": -4)"), HasSubstr("score_dim: -4"));
  EXPECT_THAT(refusal(R"("window_tokens": 100)"),
              HasSubstr("window_tokens: 100, expected a multiple of 64"));
  EXPECT_THAT(refusal(R"("window_tokens": -64)"), HasSubstr("window_tokens: -64"));
  EXPECT_THAT(refusal(R"("window_tokens": 1e30)"), HasSubstr("window_tokens"));
  EXPECT_THAT(refusal(R"("variant": "auto")"), HasSubstr("normalized or plain"));
  EXPECT_THAT(refusal(R"("variant": 1)"), HasSubstr("variant"));
  EXPECT_THAT(refusal(R"("n_kv_heads": 3)"), HasSubstr("n_kv_heads: 3"));
  EXPECT_THAT(refusal(R"("n_kv_heads": 1)"), HasSubstr("layers.0.wk: missing"));
  for (const char* field :
       {R"("score_dim": 8)", R"("window_tokens": 64)", R"("variant": "plain")"}) {
    EXPECT_THAT(EntryRefusal(absl::StrCat(R"({"name": "atp", )", field, "}")),
                HasSubstr("no such field but in taylorshift"));
  }
}

TEST_F(BundleTest, TemperaturesOfTheWindowNeedAWindowAndEveryLayer) {
  WriteZeros("w.safetensors", {{"layers.0.tau_window", {4}}, {"layers.1.tau_window", {4}}});
  EXPECT_THAT(EntryRefusal(R"({"name": "taylorshift", "weights": "w.safetensors"})"),
              HasSubstr("layers.0.tau_window"));
  const std::string entry =
      R"({"name": "taylorshift", "window_tokens": 64, "weights": "w.safetensors"})";
  WriteZeros("w.safetensors", {{"layers.0.tau_window", {4}}});
  EXPECT_THAT(EntryRefusal(entry), HasSubstr("layers.1.tau_window: missing"));
  WriteZeros("w.safetensors", {{"layers.1.tau_window", {4}}});
  EXPECT_THAT(EntryRefusal(entry), HasSubstr("layers.1.tau_window"));
  WriteZeros("w.safetensors", {{"layers.0.tau_window", {3}}});
  EXPECT_THAT(EntryRefusal(entry), HasSubstr("shape [3], expected [4]"));
}

TEST_F(BundleTest, OtherFunctionsThanTheCheckpointsNeedTensorsOfTheirOwn) {
  for (const char* name : {"taylorshift", "efficient", "lasso"}) {
    EXPECT_THAT(EntryRefusal(absl::StrCat(R"({"name": ")", name, "\"}")),
                HasSubstr(absl::StrCat(name, " computes another function")));
  }
  WriteZeros("w.safetensors", {});
  EXPECT_THAT(EntryRefusal(R"({"name": "efficient", "weights": "w.safetensors"})"),
              HasSubstr("weights: \"w.safetensors\", expected a file with tensors of its own"));
  WriteFileOrDie(model_.File("lowkey.json"), R"({"format": 1, "mechanisms": [{"name": "atp"}]})");
  ASSERT_TRUE(Open().ok()) << Open();
  EXPECT_FALSE(checkpoint_->mechanisms[0].has_own_projections);
}

TEST_F(BundleTest, RefusesWhatIsNoBundle) {
  EXPECT_THAT(Refusal("[]"), HasSubstr("lowkey.json"));
  EXPECT_THAT(Refusal("{}"), HasSubstr("format: missing"));
  EXPECT_THAT(Refusal(R"({"format": 2, "mechanisms": []})"), HasSubstr("format: 2"));
  EXPECT_THAT(Refusal(R"({"format": 1})"), HasSubstr("mechanisms"));
  EXPECT_THAT(Refusal(R"({"format": 1, "mechanisms": [1]})"), HasSubstr("mechanisms[0]"));
}

TEST_F(BundleTest, RefusesFieldsOutOfRangeByName) {
  EXPECT_THAT(EntryRefusal(R"({"name": "standard"})"),
              HasSubstr("mechanisms[0]: name: \"standard\""));
  EXPECT_THAT(EntryRefusal(R"({"name": "magic"})"), HasSubstr("name: \"magic\""));
  EXPECT_THAT(EntryRefusal(R"({"name": "atp", "heads": 4})"),
              HasSubstr("\"heads\": unknown field"));
  EXPECT_THAT(EntryRefusal(R"({"name": "atp", "n_heads": 2})"), HasSubstr("n_heads: 2"));
  EXPECT_THAT(EntryRefusal(R"({"name": "efficient", "n_heads": 5})"), HasSubstr("n_heads: 5"));
  EXPECT_THAT(EntryRefusal(R"({"name": "optimised", "n_heads": 4, "n_kv_heads": 3})"),
              HasSubstr("n_kv_heads: 3"));
  EXPECT_THAT(EntryRefusal(R"({"name": "efficient", "over": "standard"})"), HasSubstr("over"));
  EXPECT_THAT(EntryRefusal(R"({"name": "super", "over": "lasso", "alignment_tokens": 8})"),
              HasSubstr("over: \"lasso\""));
  EXPECT_THAT(EntryRefusal(R"({"name": "super"})"), HasSubstr("alignment_tokens: missing"));
  EXPECT_THAT(EntryRefusal(R"({"name": "super", "alignment_tokens": 1000000000000})"),
              HasSubstr("alignment_tokens"));
  EXPECT_THAT(EntryRefusal(R"({"name": "lasso", "lasso": {"power": 4}})"), HasSubstr("power: 4"));
  EXPECT_THAT(EntryRefusal(R"({"name": "lasso", "lasso": {"rho": 0}})"), HasSubstr("rho"));
  EXPECT_THAT(EntryRefusal(R"({"name": "atp", "lasso": {}})"), HasSubstr("lasso"));
  EXPECT_THAT(EntryRefusal(R"({"name": "atp"}, {"name": "atp"})"),
              HasSubstr("mechanisms[1]: name"));
}

TEST_F(BundleTest, RefusesFilesThatAreNotBesideIt) {
  EXPECT_THAT(EntryRefusal(R"({"name": "atp", "weights": "../model.safetensors"})"),
              HasSubstr("../model.safetensors"));
  WriteFileOrDie(
      model_.File("lowkey.json"),
      R"({"format": 1, "mechanisms": [{"name": "atp", "weights": "none.safetensors"}]})");
  EXPECT_EQ(Open().code(), absl::StatusCode::kNotFound);
}

TEST_F(BundleTest, RefusesTensorsThatAreMissingMisshapenOrTooMany) {
  const std::string efficient =
      R"({"name": "efficient", "n_heads": 2, "weights": "w.safetensors"})";
  WriteZeros("w.safetensors", {{"layers.0.wq", {32, 32}}});
  EXPECT_THAT(EntryRefusal(efficient), HasSubstr("w.safetensors: layers.0.wo: missing"));
  WriteZeros("w.safetensors", {{"layers.0.wq", {32, 16}}});
  EXPECT_THAT(EntryRefusal(efficient), HasSubstr("layers.0.wq: shape [32, 16], expected [32, 32]"));
  const std::string atp = R"({"name": "atp", "weights": "w.safetensors"})";
  WriteZeros("w.safetensors", {{"layers.0.wx", {32, 32}}});
  EXPECT_THAT(EntryRefusal(atp), HasSubstr("layers.0.wx: a tensor of shape [32, 32]"));
  WriteZeros("w.safetensors", {{"layers.0.wq.lora_a", {2, 32}}});
  EXPECT_THAT(EntryRefusal(atp), HasSubstr("layers.0.wq.lora_b: missing"));
  WriteZeros("w.safetensors", {{"layers.0.wq.lora_a", {0, 32}}, {"layers.0.wq.lora_b", {32, 0}}});
  EXPECT_THAT(EntryRefusal(atp), HasSubstr("expected a matrix of 1..4096 rows"));
  WriteZeros("w.safetensors", {{"layers.0.wa", {10}}, {"layers.1.wa", {11}}});
  EXPECT_THAT(EntryRefusal(R"({"name": "super", "over": "standard", "alignment_tokens": 4,
                               "weights": "w.safetensors"})"),
              HasSubstr("layers.1.wa: shape [11], expected [10]"));
  const std::string shift = R"({"name": "taylorshift", "weights": "w.safetensors"})";
  WriteZeros("w.safetensors", {{"layers.0.tau", {4}}});
  EXPECT_THAT(EntryRefusal(shift), HasSubstr("layers.1.tau: missing"));
  WriteZeros("w.safetensors", {{"layers.0.tau", {5}}});
  EXPECT_THAT(EntryRefusal(shift), HasSubstr("layers.0.tau: shape [5], expected [4]"));
  WriteZeros("w.safetensors", {{"layers.1.tau", {4}}});
  EXPECT_THAT(EntryRefusal(shift), HasSubstr("layers.1.tau"));
}

}  // namespace
}  // namespace lowkey
