#include "engine/kernels/linear.h"

#include <cstring>
#include <random>
#include <string>

#include "engine/base/dtype.h"
#include "engine/kernels/device/weight.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/narrow_weight.h"
#include "gtest/gtest.h"
#include "tests/engine/kernels/ref/ref.h"

namespace lowkey {
namespace {

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

// Values that every storage type holds exactly: multiples of 1/16 below 8.
std::vector<float> Coarse(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(static_cast<int>(rng() % 255) - 127) / 16.0f;
  return out;
}

TensorView View(const std::vector<float>& data, int64_t n_in) {
  return {DType::kF32,
          {static_cast<int64_t>(data.size()) / n_in, n_in},
          reinterpret_cast<const std::byte*>(data.data())};
}

struct LinearCase {
  const KernelTable* table;
  StorageType type;
  double tolerance;  // relative to the largest sum of magnitudes
  bool rounds() const { return type == StorageType::kBFloat16 && table->rounds_activations; }
};

PackedWeight Pack(const std::vector<std::vector<float>>& parts, int64_t n_in, const LinearCase& c,
                  int n_threads = 1) {
  std::vector<TensorView> views;
  for (const auto& p : parts) views.push_back(View(p, n_in));
  ThreadPool pool(n_threads);
  auto packed = PackedWeight::Pack(views, {c.type}, pool, *c.table);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

std::vector<float> Product(const PackedWeight& w, const std::vector<float>& x, int64_t first_row,
                           int64_t n_rows, int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> y(n_rows * w.n_out_padded(), -1.0f);
  Linear(w, {x.data() + first_row * w.n_in(), w.n_in()}, n_rows, y.data(), w.n_out_padded(), pool);
  return y;
}

std::vector<LinearCase> AllCases() {
  std::vector<LinearCase> out;
  for (const KernelTable* table : AvailableKernels()) {
    out.push_back({table, StorageType::kFloat32, 1e-6});
    out.push_back({table, StorageType::kBFloat16, 1e-6});
    // Rows are rounded to 16 bits: 1.5e-5 of the group's largest magnitude.
    out.push_back({table, StorageType::kInt8, 2e-5});
  }
  return out;
}

class LinearTest : public testing::TestWithParam<LinearCase> {};

INSTANTIATE_TEST_SUITE_P(Tables, LinearTest, testing::ValuesIn(AllCases()), [](const auto& info) {
  const StorageType type = info.param.type;
  return std::string(info.param.table->name) + (type == StorageType::kFloat32    ? "_fp32"
                                                : type == StorageType::kBFloat16 ? "_bf16"
                                                                                 : "_int8");
});

// Returns the numbers that stored weights stand for.
std::vector<float> Rounded(std::vector<float> weights, int64_t n_in, StorageType type) {
  if (type == StorageType::kBFloat16) {
    for (float& v : weights) v = ToFloat(ToBFloat16(v));
  } else if (type == StorageType::kInt8) {
    const TensorView view = View(weights, n_in);
    ThreadPool pool(1);
    const std::vector<std::byte> narrow = NarrowWeight({&view, 1}, type, pool);
    for (int64_t i = 0; i < view.shape[0]; ++i) {
      WidenRow({type, view.shape[0], n_in}, narrow.data(), i, weights.data() + i * n_in);
    }
  }
  return weights;
}

void ExpectMatches(const LinearCase& c, const std::vector<std::vector<float>>& parts, int64_t n_in,
                   int64_t n_rows) {
  std::vector<float> stacked;
  for (const auto& p : parts) stacked.insert(stacked.end(), p.begin(), p.end());
  const PackedWeight w = Pack(parts, n_in, c);
  ASSERT_EQ(w.n_in(), n_in);
  ASSERT_EQ(w.n_out(), static_cast<int64_t>(stacked.size()) / n_in);
  std::vector<float> x = Random(n_rows * n_in, 9);
  if (c.rounds()) {
    for (float& v : x) v = ToFloat(BFloat16{ref::ToBf16(v)});
  }
  const std::vector<double> want = ref::Linear(Rounded(stacked, n_in, c.type), x, n_in);
  const std::vector<float> got = Product(w, x, 0, n_rows);
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < w.n_out_padded(); ++j) {
      const double expected = j < w.n_out() ? want[i * w.n_out() + j] : 0.0;
      ASSERT_NEAR(got[i * w.n_out_padded() + j], expected, c.tolerance * 8 * (n_in + 1))
          << i << ", " << j << " of " << n_rows << " x " << w.n_out() << " x " << n_in;
    }
  }
}

TEST_P(LinearTest, MatchesTheOracleAtOddSizes) {
  for (int64_t n_in : {1, 63, 256, 257, 600}) {
    for (int64_t n_out : {1, 15, 16, 17, 130}) {
      for (int64_t n_rows : {1, 2, 3, 4, 7, 17}) {
        ExpectMatches(GetParam(), {Coarse(n_out * n_in, 1)}, n_in, n_rows);
      }
    }
  }
}

TEST_P(LinearTest, MatchesTheOracleBeyondOneBlockOfRows) {
  ExpectMatches(GetParam(), {Coarse(20 * 300, 1)}, 300, 259);
}

TEST_P(LinearTest, StacksPartsThatStraddlePanels) {
  const int64_t n_in = 33;
  const std::vector<std::vector<int64_t>> stacks = {{1, 1, 1},  {15, 1, 16},     {17, 5, 5},
                                                    {3, 64, 3}, {40, 7, 100, 2}, {31, 33}};
  for (const std::vector<int64_t>& sizes : stacks) {
    std::vector<std::vector<float>> parts;
    for (int64_t n_out : sizes) {
      parts.push_back(Coarse(n_out * n_in, static_cast<uint32_t>(parts.size())));
    }
    ExpectMatches(GetParam(), parts, n_in, 5);
  }
}

TEST_P(LinearTest, PacksHalfAndBf16Checkpoints) {
  const int64_t n_in = 40, n_out = 21;
  std::vector<uint16_t> half(n_in * n_out), brain(n_in * n_out);
  std::vector<float> half_values, brain_values;
  for (size_t i = 0; i < half.size(); ++i) {
    half[i] = static_cast<uint16_t>(0x3c00 + 16 * (i % 60) + (i % 2) * 0x8000);
    brain[i] = static_cast<uint16_t>(0x3f80 + i % 100);
    half_values.push_back(HalfToFloat(half[i]));
    brain_values.push_back(ToFloat(BFloat16{brain[i]}));
  }
  ThreadPool pool(1);
  const std::vector<float> x = Random(n_in, 1);
  const auto expect_same = [&](DType dtype, const std::vector<uint16_t>& bits,
                               const std::vector<float>& values) {
    const TensorView view{dtype, {n_out, n_in}, reinterpret_cast<const std::byte*>(bits.data())};
    const auto packed = PackedWeight::Pack({&view, 1}, {GetParam().type}, pool, *GetParam().table);
    ASSERT_TRUE(packed.ok());
    EXPECT_EQ(Product(*packed, x, 0, 1), Product(Pack({values}, n_in, GetParam()), x, 0, 1));
  };
  expect_same(DType::kF16, half, half_values);
  expect_same(DType::kBF16, brain, brain_values);
}

TEST_P(LinearTest, PacksInterleavedRowsOfQuantizedWeights) {
  const int64_t n_in = 64, n_out = 24, block_bytes = 34;  // Q8_0, heads of six rows
  std::vector<std::byte> blocks(n_out * n_in / 32 * block_bytes);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(7 * i % 251);
  for (size_t i = 0; i < blocks.size(); i += block_bytes) {
    const uint16_t scale = FloatToHalf(0.01f);
    std::memcpy(&blocks[i], &scale, sizeof(scale));
  }
  TensorView stored{DType::kQ8_0, {n_out, n_in}, blocks.data()};
  stored.interleaved_rows = 6;
  std::vector<float> rows(n_out * n_in);
  for (int64_t i = 0; i < n_out; ++i) {
    const int64_t place = i / 6 * 6 + (i % 6 < 3 ? 2 * (i % 6) : 2 * (i % 6) - 5);
    LoadFloats(stored, place * n_in, n_in, rows.data() + i * n_in);
  }
  ThreadPool pool(1);
  const std::vector<float> x = Random(n_in, 1);
  const auto packed = PackedWeight::Pack({&stored, 1}, {GetParam().type}, pool, *GetParam().table);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(Product(*packed, x, 0, 1), Product(Pack({rows}, n_in, GetParam()), x, 0, 1));
}

TEST_P(LinearTest, RoundsWeightsToTheirStorage) {
  const float weight = 1.0f + 0x1p-7f + 0x1p-12f;
  const PackedWeight w = Pack({{weight}}, 1, GetParam());
  EXPECT_EQ(Product(w, {1.0f}, 0, 1)[0], Rounded({weight}, 1, GetParam().type)[0]);
  EXPECT_EQ(w.size_bytes(),
            GetParam().type == StorageType::kInt8
                ? w.n_out_padded() * (kNarrowBlock + 2)
                : w.n_out_padded() * w.parts()[0].n_in_padded * StorageBytes(GetParam().type));
}

TEST_P(LinearTest, RowsHaveTheSameBitsAloneAndTogether) {
  const int64_t n_in = 520;  // more than two blocks of k
  const PackedWeight w = Pack({Random(77 * n_in, 1)}, n_in, GetParam());
  const std::vector<float> x = Random(40 * n_in, 2);
  std::vector<std::vector<float>> alone;
  for (int64_t i = 0; i < 40; ++i) alone.push_back(Product(w, x, i, 1));
  for (int64_t n_rows = 1; n_rows <= 40; ++n_rows) {
    const std::vector<float> together = Product(w, x, 0, n_rows);
    for (int64_t i = 0; i < n_rows; ++i) {
      ASSERT_EQ(std::memcmp(together.data() + i * w.n_out_padded(), alone[i].data(),
                            w.n_out_padded() * sizeof(float)),
                0)
          << "row " << i << " of " << n_rows;
    }
  }
}

TEST_P(LinearTest, PoolSizeChangesNoBits) {
  const int64_t n_in = 300;
  const std::vector<float> weight = Random(333 * n_in, 1), x = Random(9 * n_in, 2);
  const PackedWeight w = Pack({weight}, n_in, GetParam());
  for (int n_threads : {2, 3}) {
    const PackedWeight other = Pack({weight}, n_in, GetParam(), n_threads);
    ASSERT_EQ(other.size_bytes(), w.size_bytes());
    EXPECT_EQ(std::memcmp(other.parts()[0].data.data(), w.parts()[0].data.data(), w.size_bytes()),
              0);
    for (int64_t n_rows : {1, 2, 9}) {
      const std::vector<float> one = Product(w, x, 0, n_rows),
                               more = Product(w, x, 0, n_rows, n_threads);
      EXPECT_EQ(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)), 0)
          << n_rows << " rows, " << n_threads << " threads";
    }
  }
}

TEST_P(LinearTest, GatedRowsHaveTheBitsOfTheirParts) {
  const KernelTable& table = *GetParam().table;
  const int64_t n_in = 70;
  ThreadPool pool(1);
  for (int64_t n : {33, 64, 1600}) {
    const PackedWeight w = Pack({Random(n * n_in, 1), Random(n * n_in, 2)}, n_in, GetParam());
    const int64_t ld = w.n_out_padded() + 3;
    for (int64_t n_rows : {1, 33, n == 64 ? 513 : 49}) {
      const std::vector<float> x = Random(n_rows * n_in, 3);
      for (const std::vector<float>& bias : {std::vector<float>(), Random(2 * n, 4)}) {
        std::vector<float> y(n_rows * ld);
        GatedLinear(w, bias, {x.data(), n_in}, n_rows, nullptr, y.data(), ld, pool);
        for (int64_t i = 0; i < n_rows; ++i) {
          std::vector<float> want = Product(w, x, i, 1);
          if (!bias.empty()) table.add(bias.data(), want.data(), 2 * n);
          table.silu_mul(want.data(), want.data() + n, want.data(), n);
          ASSERT_EQ(std::memcmp(y.data() + i * ld, want.data(), n * sizeof(float)), 0)
              << "row " << i << " of " << n_rows << ", " << n << " outputs";
        }
      }
    }
  }
}

// Rows go through two weights, many at once and each alone.
TEST_P(LinearTest, FeedForwardRowsHaveTheBitsOfRowsAlone) {
  const int64_t n_in = 70;
  ThreadPool pool(2);
  for (const int64_t n : {33, 64, 96}) {
    const PackedWeight w = Pack({Random(n * n_in, 1), Random(n * n_in, 2)}, n_in, GetParam());
    for (const int64_t n_out : {40, 64}) {
      const PackedWeight next = Pack({Random(n_out * n, 3)}, n, GetParam());
      const int64_t ld = w.n_out_padded() + 3;
      for (const std::vector<float>& bias : {std::vector<float>(), Random(n_out, 4)}) {
        const auto feed = [&](const float* x, int64_t n_rows, std::vector<float> y) {
          std::vector<float> gated(n_rows * ld), scratch(n_rows * RowStride(next.n_out_padded()));
          const LinearRows rows =
              GatedLinear(w, {}, {x, n_in}, n_rows, &next, gated.data(), ld, pool);
          AddLinear(next, bias, rows, n_rows, y.data(), n_out, scratch.data(), pool);
          return y;
        };
        for (const int64_t n_rows : {1, 31, 33, 49, n == 64 ? 513 : 50}) {
          const std::vector<float> x = Random(n_rows * n_in, 5), y = Random(n_rows * n_out, 6);
          const std::vector<float> got = feed(x.data(), n_rows, y);
          for (int64_t i = 0; i < n_rows; ++i) {
            const auto first = y.begin() + i * n_out;
            const std::vector<float> want = feed(x.data() + i * n_in, 1, {first, first + n_out});
            ASSERT_EQ(std::memcmp(&got[i * n_out], want.data(), n_out * sizeof(float)), 0)
                << "row " << i << " of " << n_rows << ", " << n << " and " << n_out << " outputs";
          }
        }
      }
    }
  }
}

// The last of many blocks of rows has few of them.
TEST_P(LinearTest, LastRowsOfManyHaveTheBitsOfRowsAlone) {
  const int64_t n_in = 32, n = 32, n_rows = 31 * 512 - 495, n_checked = 20;
  ThreadPool pool(2);
  const PackedWeight w = Pack({Random(n * n_in, 1), Random(n * n_in, 2)}, n_in, GetParam());
  const PackedWeight next = Pack({Random(n * n, 3)}, n, GetParam());
  const int64_t ld = w.n_out_padded();
  const auto feed = [&](const float* x, int64_t count) {
    std::vector<float> gated(count * ld), y(count * n), scratch(count * RowStride(n));
    const LinearRows rows = GatedLinear(w, {}, {x, n_in}, count, &next, gated.data(), ld, pool);
    AddLinear(next, {}, rows, count, y.data(), n, scratch.data(), pool);
    return y;
  };
  const std::vector<float> x = Random(n_rows * n_in, 5), got = feed(x.data(), n_rows);
  for (int64_t i = n_rows - n_checked; i < n_rows; ++i) {
    const std::vector<float> want = feed(x.data() + i * n_in, 1);
    ASSERT_EQ(std::memcmp(&got[i * n], want.data(), n * sizeof(float)), 0) << "row " << i;
  }
}

}  // namespace
}  // namespace lowkey
