// Layers of one model may hold their maps in different forms, which are padded differently.
#include "engine/model/weight_set.h"

#include <cstring>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/kernels.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kHidden = 256;

// A map in blocks of 32 signed bytes with a scale.
struct Q8Map {
  explicit Q8Map(int64_t n_out, uint32_t seed) : bytes(n_out * kHidden / 32 * 34) {
    std::mt19937 rng(seed);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    for (size_t at = 0; at < bytes.size(); at += 34) {
      const uint16_t scale = FloatToHalf(0.001f);
      std::memcpy(&bytes[at], &scale, sizeof(scale));
    }
    view = {DType::kQ8_0, {n_out, kHidden}, bytes.data()};
  }
  std::vector<std::byte> bytes;
  TensorView view;
};

TEST(WeightSetTest, RowsDoNotReachIntoOneAnotherWhateverTheFormsOfLayers) {
  // No panel of 16 or 32 outputs divides the queries' and keys' together.
  for (const int32_t head_dim : {80, 24, 8}) {
    ModelConfig config;
    config.hidden_dim = kHidden;
    config.n_layers = 2;
    config.n_heads = 4;
    config.n_kv_heads = 1;
    config.head_dim = head_dim;
    const Q8Map q(4 * head_dim, 1), k(head_dim, 2), v(head_dim, 3), o(kHidden, 4);
    std::vector<float> wide(head_dim * kHidden), out(kHidden * 4 * head_dim);
    std::mt19937 rng(5);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& x : wide) x = uniform(rng);
    const auto floats = [](const std::vector<float>& values, int64_t n_out, int64_t n_in) {
      return TensorView{
          DType::kF32, {n_out, n_in}, reinterpret_cast<const std::byte*>(values.data())};
    };
    LayerTensors alike, mixed;
    alike.q_proj = q.view;
    alike.k_proj = k.view;
    alike.v_proj = v.view;
    alike.o_proj = floats(out, kHidden, 4 * head_dim);
    mixed = alike;
    mixed.v_proj = floats(wide, head_dim, kHidden);
    ThreadPool pool(2);
    WeightSet set(config, pool);
    const auto pack = [&pool](absl::Span<const TensorView> views) {
      return PackedWeight::Pack(views, {StorageType::kBFloat16, true}, pool, Kernels());
    };
    ASSERT_TRUE(set.AddLayer(alike, pack).ok());
    ASSERT_TRUE(set.AddLayer(mixed, pack).ok());
    constexpr int64_t kRows = 5;
    set.ReserveRows(kRows);
    std::vector<float> x(kRows * kHidden);
    for (float& value : x) value = uniform(rng);
    for (const int64_t layer : {0, 1}) {
      const std::vector<int64_t> positions = {7, 8, 9, 10, 11};
      set.Begin(positions);
      const LayerRows together = set.Project(layer, x.data());
      std::vector<float> rows;
      for (int64_t i = 0; i < kRows; ++i) {
        rows.insert(rows.end(), together.q + i * together.ld_qkv,
                    together.q + i * together.ld_qkv + 6 * head_dim);
      }
      for (int64_t i = 0; i < kRows; ++i) {
        set.Begin({&positions[i], 1});
        const LayerRows alone = set.Project(layer, x.data() + i * kHidden);
        EXPECT_EQ(
            std::memcmp(alone.q, rows.data() + i * 6 * head_dim, 6 * head_dim * sizeof(float)), 0)
            << "head_dim " << head_dim << ", layer " << layer << ", row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
