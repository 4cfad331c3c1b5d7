// Mechanisms of a bundle through the whole model, where their outputs must be standard attention's.
#include "engine/model/decoder.h"

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "bench/random_bundle.h"
#include "engine/loader/checkpoint.h"
#include "engine/loader/safetensors.h"
#include "engine/runtime/inspect.h"
#include "gtest/gtest.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

// A config with as many KV heads as heads: slices of x can stand for keys and values.
ModelConfig Config() {
  ModelConfig config = TinyConfig();
  config.n_kv_heads = config.n_heads;
  return config;
}

using Edit = std::function<void(const std::string& name, std::vector<float>& values)>;

// Writes all tensors of `from` to `to`, edited, under names that `rename` gives ("": left out).
void RewriteTensors(const std::string& from, const std::string& to, const Edit& edit,
                    const std::function<std::string(const std::string&)>& rename) {
  const auto file = OpenSafetensors(from);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::vector<float>> memory;
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& [name, view] : file->index.tensors) {
    if (rename(name).empty()) continue;
    std::vector<float>& values = memory.emplace_back(view.size());
    LoadFloats(view, 0, view.size(), values.data());
    edit(name, values);
    TensorView copy;
    copy.shape = view.shape;
    copy.data = reinterpret_cast<const std::byte*>(values.data());
    tensors.emplace_back(rename(name), copy);
  }
  ASSERT_TRUE(WriteSafetensors(to, tensors).ok());
}

void MakeIdentity(std::vector<float>& values) {
  const auto n = static_cast<size_t>(std::lround(std::sqrt(values.size())));
  for (size_t i = 0; i < values.size(); ++i) values[i] = i / n == i % n ? 1.0f : 0.0f;
}

// The name in a bundle of a checkpoint's projection, one of those whose letters are given; "" for
// every other tensor.
std::string BundledName(const std::string& name, std::string_view letters) {
  const size_t begin = std::string("model.").size(), at = name.find(".self_attn.");
  if (at == std::string::npos) return "";
  const char letter = name[at + std::string(".self_attn.").size()];
  if (letters.find(letter) == std::string_view::npos) return "";
  return name.substr(begin, at - begin) + ".w" + letter;
}

void WriteBundle(const TempDirectory& directory, const std::string& entries) {
  WriteFileOrDie(directory.File("lowkey.json"),
                 "{\"format\": 1, \"mechanisms\": [" + entries + "]}");
}

std::vector<float> Logits(const TempDirectory& directory, Mechanism mechanism) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 150; ++i) tokens.push_back((i * 37 + 11) % 96);
  LogitsOptions options;
  options.attention.mechanism = mechanism;
  options.engine.n_threads = 2;
  auto logits = ComputeLogits(OpenCheckpoint(directory.path()).value(), tokens, options);
  EXPECT_TRUE(logits.ok()) << logits.status();
  return logits.ok() ? *std::move(logits) : std::vector<float>();
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::fabs(a[i] - b[i]));
  EXPECT_LE(worst, tolerance);
}

class BundledLayerTest : public testing::Test {
 protected:
  // The model with identities for the projections named, in a directory of its own.
  void WriteModel(const std::vector<std::string>& identities) {
    const TinyModel model({.config = Config(), .dtype = DType::kF32, .seed = 4});
    WriteFileOrDie(directory_.File("config.json"), ConfigJson(Config()));
    const auto edit = [&](const std::string& name, std::vector<float>& values) {
      for (const std::string& i : identities) {
        if (absl::StrContains(name, i)) MakeIdentity(values);
      }
    };
    RewriteTensors(model.File("model.safetensors"), directory_.File("model.safetensors"), edit,
                   [](const std::string& name) { return name; });
  }

  // Writes the checkpoint's tensors, under the names given, as own.safetensors of a bundle.
  void WriteOwn(const std::function<std::string(const std::string&)>& rename) {
    RewriteTensors(
        directory_.File("model.safetensors"), directory_.File("own.safetensors"),
        [](const std::string&, std::vector<float>&) {}, rename);
  }

  const TempDirectory directory_;
};

TEST_F(BundledLayerTest, OptimisedIsStandardWithAnIdentityForWv) {
  WriteModel({"v_proj"});
  WriteOwn([](const std::string& name) { return BundledName(name, "qko"); });
  WriteBundle(directory_, R"({"name": "optimised", "weights": "own.safetensors"})");
  ExpectNear(Logits(directory_, Mechanism::kOptimised), Logits(directory_, Mechanism::kStandard),
             1e-4f);
}

TEST_F(BundledLayerTest, EfficientIsStandardWithIdentitiesForWkAndWv) {
  WriteModel({"k_proj", "v_proj"});
  WriteOwn([](const std::string& name) { return BundledName(name, "qo"); });
  WriteBundle(directory_, R"({"name": "efficient", "weights": "own.safetensors"})");
  ExpectNear(Logits(directory_, Mechanism::kEfficient), Logits(directory_, Mechanism::kStandard),
             1e-4f);
}

TEST_F(BundledLayerTest, FullProjectionsStandInForTheCheckpoints) {
  WriteModel({});
  // The bundle's own file holds the same matrices, halved.
  RewriteTensors(
      directory_.File("model.safetensors"), directory_.File("own.safetensors"),
      [](const std::string&, std::vector<float>& values) {
        for (float& x : values) x *= 0.5f;
      },
      [](const std::string& name) { return BundledName(name, "qkvo"); });
  WriteBundle(directory_, R"({"name": "atp", "weights": "own.safetensors"})");
  const std::vector<float> halved = Logits(directory_, Mechanism::kAtp);
  const std::vector<float> standard = Logits(directory_, Mechanism::kStandard);
  // The checkpoint with every attention matrix halved must agree.
  RewriteTensors(
      directory_.File("model.safetensors"), directory_.File("halved.safetensors"),
      [](const std::string& name, std::vector<float>& values) {
        if (!absl::StrContains(name, "self_attn")) return;
        for (float& x : values) x *= 0.5f;
      },
      [](const std::string& name) { return name; });
  const TempDirectory other;
  WriteFileOrDie(other.File("config.json"), ConfigJson(Config()));
  WriteFileOrDie(other.File("model.safetensors"),
                 ReadFileOrDie(directory_.File("halved.safetensors")));
  EXPECT_EQ(halved, Logits(other, Mechanism::kStandard));
  EXPECT_NE(halved, standard);
}

TEST_F(BundledLayerTest, LowRankChangesAreAddedToTheCheckpoints) {
  WriteModel({});
  // wq + 2 b a, with a and b of rank 1, beside the sum written out.
  std::vector<float> a(32), b(32);
  for (int i = 0; i < 32; ++i) {
    a[i] = 0.1f * static_cast<float>(i % 5 - 2);
    b[i] = 0.1f * static_cast<float>(i % 7 - 3);
  }
  const auto view = [](const std::vector<float>& x, std::vector<int64_t> shape) {
    TensorView v;
    v.shape = std::move(shape);
    v.data = reinterpret_cast<const std::byte*>(x.data());
    return v;
  };
  ASSERT_TRUE(WriteSafetensors(directory_.File("lora.safetensors"),
                               {{"layers.0.wq.lora_a", view(a, {1, 32})},
                                {"layers.0.wq.lora_b", view(b, {32, 1})}})
                  .ok());
  WriteBundle(directory_, R"({"name": "atp", "weights": "lora.safetensors", "lora_scale": 2})");
  const std::vector<float> changed = Logits(directory_, Mechanism::kAtp);
  const TempDirectory other;
  WriteFileOrDie(other.File("config.json"), ConfigJson(Config()));
  RewriteTensors(
      directory_.File("model.safetensors"), other.File("model.safetensors"),
      [&](const std::string& name, std::vector<float>& values) {
        if (name != "model.layers.0.self_attn.q_proj.weight") return;
        for (int i = 0; i < 32 * 32; ++i) values[i] += 2 * b[i / 32] * a[i % 32];
      },
      [](const std::string& name) { return name; });
  ExpectNear(changed, Logits(other, Mechanism::kStandard), 1e-4f);
  EXPECT_NE(changed, Logits(directory_, Mechanism::kStandard));
}

}  // namespace
}  // namespace lowkey
