#include "engine/kernels/coded_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/codes/quantized.h"
#include "engine/base/dtype.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/linear.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr DType kTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                            DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

TensorView EmptyOf(DType dtype) {
  TensorView view;
  view.dtype = dtype;
  return view;
}

CodeFormat FormatOf(DType dtype) { return *CodeFormatOf(EmptyOf(dtype)); }

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

// A matrix of random blocks whose scales are small numbers of both signs.
struct Blocks {
  Blocks(DType dtype, int64_t n_out, int64_t n_in, uint32_t seed) {
    const size_t block_bytes = DTypeBytes(dtype);
    bytes.resize(n_out * n_in / DTypeBlockSize(dtype) * block_bytes);
    std::mt19937 rng(seed);
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    const bool has_two = dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
                         dtype == DType::kQ5_K;
    for (size_t at = 0; at < bytes.size(); at += block_bytes) {
      const size_t scale_at = dtype == DType::kQ6_K ? 208 : 0;
      for (int i = 0; i < (has_two ? 2 : 1); ++i) {
        const float number = (static_cast<float>(rng() % 2001) - 1000) / 65536;
        const uint16_t scale = FloatToHalf(number);
        std::memcpy(&bytes[at + scale_at + 2 * i], &scale, sizeof(scale));
      }
    }
    view = {dtype, {n_out, n_in}, bytes.data()};
  }

  std::vector<std::byte> bytes;
  TensorView view;
};

// The formula of coded_weight.h in plain loops, over rows of the codes' width.
class Formula {
 public:
  Formula(CodeFormat format, const std::vector<float>& x) : shape_(ShapeOf(format)) {
    const float most = shape_.row_bits == 8 ? 127 : 32767;
    for (size_t at = 0; at < x.size(); at += shape_.group) {
      float largest = 0;
      const size_t end = std::min<size_t>(at + shape_.group, x.size());
      for (size_t i = at; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
      const float inverse = most / largest;
      int64_t sum = 0;
      for (size_t i = at; i < end; ++i) {
        codes_.push_back(static_cast<int64_t>(std::nearbyint(x[i] * inverse)));
        sum += codes_.back();
      }
      scales_.push_back(largest / most);
      sums_.push_back(scales_.back() * static_cast<float>(sum));
    }
    codes_.resize((codes_.size() + shape_.block - 1) / shape_.block * shape_.block);
  }

  // One output, of a row of the weight's blocks.
  float Output(DType dtype, const std::byte* blocks) const {
    return Output([&](int64_t index, CodedBlock& block) {
      ReadCodes(dtype, blocks + index * DTypeBytes(dtype), block);
    });
  }
  float Output(const std::function<void(int64_t, CodedBlock&)>& read) const {
    float y = 0;
    CodedBlock block;
    for (size_t first = 0; first < codes_.size(); first += shape_.block) {
      read(first / shape_.block, block);
      for (int64_t g = 0; g < shape_.block / shape_.group; ++g) y = AddGroup(block, first, g, y);
    }
    return y;
  }

 private:
  float AddGroup(const CodedBlock& block, size_t first, int64_t g, float y) const {
    const bool is_signed = shape_.bits == 8;
    int64_t sum = 0;
    for (int64_t k = g * shape_.group; k < (g + 1) * shape_.group; ++k) {
      const int64_t code =
          is_signed ? static_cast<int8_t>(block.codes[k]) : block.codes[k] - shape_.zero;
      sum += code * codes_[first + k];
    }
    float scale = HalfToFloat(block.scale), add = HalfToFloat(block.add);
    if (shape_.sub_bytes > 0) scale *= static_cast<int8_t>(block.scale_factors[g]);
    if (shape_.sub_bytes > 1) add *= -static_cast<float>(block.add_factors[g]);
    if (shape_.stores_zero) add = -(scale * static_cast<float>(block.add_factors[0]));
    const size_t group = first / shape_.group + g;
    y = std::fma(static_cast<float>(sum) * scales_[group], scale, y);
    return shape_.has_add() ? std::fma(sums_[group], add, y) : y;
  }

  const CodeShape shape_;
  std::vector<int64_t> codes_;
  std::vector<float> scales_, sums_;
};

std::vector<float> Product(const PackedWeight& w, const std::vector<float>& x, int64_t n_rows,
                           int n_threads = 1) {
  ThreadPool pool(n_threads);
  std::vector<float> y(n_rows * w.n_out_padded(), -1.0f);
  Linear(w, {x.data(), w.n_in()}, n_rows, y.data(), w.n_out_padded(), pool);
  return y;
}

PackedWeight Pack(absl::Span<const TensorView> views, const KernelTable& table) {
  ThreadPool pool(2);
  auto packed = PackedWeight::Pack(views, {StorageType::kBFloat16, true}, pool, table);
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

class CodedWeightTest : public testing::TestWithParam<const KernelTable*> {};

INSTANTIATE_TEST_SUITE_P(Tables, CodedWeightTest, testing::ValuesIn(AvailableKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(CodedWeightTest, ProductsAreTheFormulasToTheBit) {
  for (DType dtype : kTypes) {
    for (int64_t n_in : {256, 768, 1280}) {
      const int64_t n_out = 67, n_rows = 15;
      const Blocks blocks(dtype, n_out, n_in, 3);
      const PackedWeight w = Pack({&blocks.view, 1}, *GetParam());
      ASSERT_EQ(w.parts()[0].form.codes, FormatOf(dtype));
      const std::vector<float> x = Random(n_rows * n_in, 4);
      const std::vector<float> y = Product(w, x, n_rows);
      const size_t row_bytes = blocks.bytes.size() / n_out;
      for (int64_t i = 0; i < n_rows; ++i) {
        const Formula formula(FormatOf(dtype), {x.begin() + i * n_in, x.begin() + (i + 1) * n_in});
        for (int64_t j = 0; j < n_out; ++j) {
          ASSERT_EQ(std::bit_cast<uint32_t>(y[i * w.n_out_padded() + j]),
                    std::bit_cast<uint32_t>(formula.Output(dtype, &blocks.bytes[j * row_bytes])))
              << DTypeName(dtype) << " " << n_in << ": row " << i << ", output " << j;
        }
      }
    }
  }
}

// A matrix as GPTQ packs it, of random codes and scales, and random zero points of 4 bits.
struct Gptq {
  Gptq(DType dtype, int64_t n_out, int64_t n_in, int64_t group_size) {
    std::mt19937 rng(11);
    const int64_t n_groups = n_in / group_size, in_word = DTypeBlockSize(dtype);
    codes.resize(n_in / in_word * n_out);
    zeros.resize(n_groups * n_out / in_word, 0x7f7f7f7f);
    scales.resize(n_groups * n_out);
    for (uint32_t& word : codes) word = rng();
    for (uint32_t& word : zeros) word = dtype == DType::kGptq4 ? rng() : word;
    for (uint16_t& s : scales) s = FloatToHalf(static_cast<float>(rng() % 1000 + 1) / 65536);
    groups = std::make_shared<GroupedCodes>();
    groups->dtype = dtype;
    groups->n_out = n_out;
    groups->n_in = n_in;
    groups->group_size = group_size;
    groups->codes = reinterpret_cast<const std::byte*>(codes.data());
    groups->zeros = reinterpret_cast<const std::byte*>(zeros.data());
    groups->scales = reinterpret_cast<const std::byte*>(scales.data());
    groups->zero_offset = 1;
    groups->is_symmetric = dtype == DType::kGptq8;
    view = {dtype, {n_out, n_in}, groups->codes, 0, groups};
  }

  std::vector<uint32_t> codes, zeros;
  std::vector<uint16_t> scales;
  std::shared_ptr<GroupedCodes> groups;
  TensorView view;
};

TEST_P(CodedWeightTest, ProductsOfGroupedCodesAreTheFormulasToTheBit) {
  const int64_t n_out = 72, n_in = 384, group_size = 128, n_rows = 9;
  for (const auto& [dtype, format] :
       {std::pair{DType::kGptq4, CodeFormat::kInt4}, std::pair{DType::kGptq8, CodeFormat::kQ8_0}}) {
    const Gptq matrix(dtype, n_out, n_in, group_size);
    const PackedWeight w = Pack({&matrix.view, 1}, *GetParam());
    ASSERT_EQ(w.parts()[0].form.codes, format);
    const int middle = format == CodeFormat::kQ8_0 ? 128 : 0;
    const std::vector<float> x = Random(n_rows * n_in, 4);
    const std::vector<float> y = Product(w, x, n_rows);
    std::vector<uint8_t> codes(n_in);
    std::vector<float> scales(n_in / group_size);
    std::vector<int32_t> zeros(n_in / group_size);
    for (int64_t i = 0; i < n_rows; ++i) {
      const Formula formula(format, {x.begin() + i * n_in, x.begin() + (i + 1) * n_in});
      for (int64_t j = 0; j < n_out; ++j) {
        LoadCodes(*matrix.groups, j, codes.data());
        LoadGroups(*matrix.groups, j, scales.data(), zeros.data());
        const float expected = formula.Output([&](int64_t index, CodedBlock& block) {
          block.scale = FloatToHalf(scales[index * 32 / group_size]);
          block.add_factors[0] = static_cast<uint8_t>(zeros[index * 32 / group_size]);
          for (int64_t k = 0; k < 32; ++k) {
            block.codes[k] = static_cast<uint8_t>(codes[index * 32 + k] - middle);
          }
        });
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i * w.n_out_padded() + j]),
                  std::bit_cast<uint32_t>(expected))
            << DTypeName(dtype) << ": row " << i << ", output " << j;
      }
    }
  }
}

TEST(CodedWeight, GroupsThatAreNoBlocksOfNeighborsAreWidened) {
  Gptq matrix(DType::kGptq4, 16, 256, 128);
  const WeightStorage storage = {StorageType::kBFloat16, true};
  EXPECT_EQ(FormOf(matrix.view, storage).codes, CodeFormat::kInt4);
  matrix.groups->group_size = 48;
  EXPECT_EQ(FormOf(matrix.view, storage).codes, std::nullopt);
  matrix.groups->group_size = 128;
  matrix.groups->scale_dtype = DType::kBF16;
  EXPECT_EQ(FormOf(matrix.view, storage).codes, std::nullopt);
  matrix.groups->scale_dtype = DType::kF16;
  matrix.groups->groups.assign(256, 0);
  EXPECT_EQ(FormOf(matrix.view, storage).codes, std::nullopt);
}

TEST(CodedWeight, CodesOf8BitsAroundAnotherZeroPointAreWidened) {
  Gptq matrix(DType::kGptq8, 16, 256, 128);
  const WeightStorage storage = {StorageType::kBFloat16, true};
  EXPECT_EQ(FormOf(matrix.view, storage).codes, CodeFormat::kQ8_0);
  matrix.groups->is_symmetric = false;
  EXPECT_EQ(FormOf(matrix.view, storage).codes, std::nullopt);
}

TEST_P(CodedWeightTest, ProductsAreNearThoseOfTheNumbers) {
  for (DType dtype : kTypes) {
    const int64_t n_out = 40, n_in = 512;
    const Blocks blocks(dtype, n_out, n_in, 5);
    const std::vector<float> x = Random(n_in, 6);
    const std::vector<float> y = Product(Pack({&blocks.view, 1}, *GetParam()), x, 1);
    std::vector<float> numbers(n_in);
    for (int64_t j = 0; j < n_out; ++j) {
      LoadRow(blocks.view, j, numbers.data());
      double want = 0, magnitude = 0;
      for (int64_t k = 0; k < n_in; ++k) {
        want += double{numbers[k]} * x[k];
        magnitude += std::fabs(double{numbers[k]} * x[k]);
      }
      const bool is_8_bit = ShapeOf(FormatOf(dtype)).row_bits == 8;
      EXPECT_NEAR(y[j], want, magnitude * (is_8_bit ? 3e-3 : 1e-5)) << DTypeName(dtype);
    }
  }
}

TEST_P(CodedWeightTest, RowsHaveTheSameBitsAloneAndTogether) {
  for (DType dtype : kTypes) {
    const int64_t n_in = 768, n_rows = 70;
    const Blocks blocks(dtype, 77, n_in, 7);
    const PackedWeight w = Pack({&blocks.view, 1}, *GetParam());
    const std::vector<float> x = Random(n_rows * n_in, 8);
    const std::vector<float> all = Product(w, x, n_rows, 2);
    for (int64_t n : {1, 2, 3, 4, 5, 6, 7, 13, 33}) {
      const std::vector<float> some = Product(w, x, n);
      ASSERT_EQ(std::memcmp(some.data(), all.data(), some.size() * sizeof(float)), 0)
          << DTypeName(dtype) << ", " << n << " rows";
    }
  }
}

TEST_P(CodedWeightTest, StacksOfDifferentFormatsKeepEachItsOwn) {
  const int64_t n_in = 256;
  const Blocks q(DType::kQ4_K, 37, n_in, 1), k(DType::kQ4_K, 5, n_in, 2);
  const Blocks v(DType::kQ6_K, 21, n_in, 3);
  const std::vector<float> wide = Random(9 * n_in, 4);
  const TensorView f32{DType::kF32, {9, n_in}, reinterpret_cast<const std::byte*>(wide.data())};
  const PackedWeight w = Pack({{q.view, k.view, v.view, f32}}, *GetParam());
  ASSERT_EQ(w.parts().size(), 3u);
  EXPECT_EQ(w.n_out(), 72);
  const std::vector<float> x = Random(3 * n_in, 5);
  const std::vector<float> y = Product(w, x, 3);
  int64_t first = 0;
  for (const TensorView* view : {&q.view, &k.view, &v.view, &f32}) {
    const PackedWeight alone = Pack({view, 1}, *GetParam());
    const std::vector<float> part = Product(alone, x, 3);
    for (int64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(std::memcmp(&y[i * w.n_out_padded() + first], &part[i * alone.n_out_padded()],
                            view->shape[0] * sizeof(float)),
                0)
          << DTypeName(view->dtype) << ", row " << i;
    }
    first += view->shape[0];
  }
}

TEST_P(CodedWeightTest, ARowThatIsNotFiniteGivesNaNAndNothingElse) {
  const int64_t n_in = 256, n_out = 20;
  for (DType dtype : kTypes) {
    const Blocks blocks(dtype, n_out, n_in, 9);
    const PackedWeight w = Pack({&blocks.view, 1}, *GetParam());
    std::vector<float> x = Random(3 * n_in, 10);
    const std::vector<float> before = Product(w, x, 3);
    for (float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      x[n_in + 100] = bad;
      const std::vector<float> y = Product(w, x, 3);
      for (int64_t j = 0; j < n_out; ++j) {
        EXPECT_TRUE(std::isnan(y[w.n_out_padded() + j])) << DTypeName(dtype);
        EXPECT_EQ(y[j], before[j]);
        EXPECT_EQ(y[2 * w.n_out_padded() + j], before[2 * w.n_out_padded() + j]);
      }
    }
  }
}

TEST_P(CodedWeightTest, ZerosAndTinyNumbersGiveZeros) {
  const Blocks blocks(DType::kQ4_K, 20, 256, 9);
  std::vector<float> x(256, 0.0f);
  x[3] = 1e-31f;
  for (float y : Product(Pack({&blocks.view, 1}, *GetParam()), x, 1)) EXPECT_EQ(y, 0.0f);
}

TEST(CodedWeight, IsHeldInItsOwnSize) {
  for (DType dtype : kTypes) {
    const Blocks blocks(dtype, 64, 512, 1);
    const auto& table = *AvailableKernels().back();
    const int64_t held = Pack({&blocks.view, 1}, table).size_bytes();
    EXPECT_EQ(held, PackedBytes(FormOf(blocks.view, {StorageType::kBFloat16, true}), 64, 512,
                                table.panel_columns));
    // Q4_K's and Q5_K's factors of 6 bits have a byte each.
    EXPECT_LE(static_cast<double>(held), 1.03 * static_cast<double>(blocks.bytes.size()))
        << DTypeName(dtype);
  }
}

TEST(CodedWeight, OtherStorageWidensIt) {
  EXPECT_EQ(FormOf(EmptyOf(DType::kQ4_K), {StorageType::kBFloat16}),
            (WeightForm{.type = StorageType::kBFloat16}));
  EXPECT_EQ(FormOf(EmptyOf(DType::kQ4_K), {StorageType::kInt8}),
            (WeightForm{.codes = CodeFormat::kInt8}));
  EXPECT_EQ(FormOf(EmptyOf(DType::kF16), {StorageType::kBFloat16, true}),
            (WeightForm{.type = StorageType::kBFloat16}));
  EXPECT_EQ(CodeFormatName(CodeFormat::kQ4_K), "Q4_K");
  EXPECT_EQ(CodeFormatName(CodeFormat::kInt8), "int8");
}

}  // namespace
}  // namespace lowkey
