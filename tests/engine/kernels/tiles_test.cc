// Products by a matrix unit: their order of sums, and AMX's instructions against it on any
// processor with AVX-512 (tile_trap.h).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <tuple>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/kernels/cpu/tables.h"
#include "engine/kernels/linear.h"
#include "tests/engine/kernels/kernels_testing.h"
#include "tests/engine/kernels/ref/ref.h"
#if defined(__x86_64__)
#include "tests/engine/kernels/tile_trap.h"
#endif

namespace lowkey {
namespace {

// Each case is a table whose products are made by tiles, and what it needs to run here.
struct TilesCase {
  const KernelTable* table;
  bool needs_trap;
};

std::vector<TilesCase> TilesCases() {
  std::vector<TilesCase> out;
#if defined(__x86_64__)
  bool has_vectors = false, has_tiles = false;
  for (const KernelTable* table : AvailableKernels()) {
    has_vectors = has_vectors || table->name == "avx512_bf16";
    has_tiles = has_tiles || table->name == "amx";
  }
  if (has_vectors) out.push_back({&cpu::kAmxTable, !has_tiles});
#endif
  out.push_back({&cpu::kPortableAmxTable, false});
  return out;
}

class TilesTest : public testing::TestWithParam<TilesCase> {
 protected:
  TilesTest() {
#if defined(__x86_64__)
    if (GetParam().needs_trap) trap_.emplace();
#endif
  }
  const KernelTable& table() const { return *GetParam().table; }

 private:
#if defined(__x86_64__)
  std::optional<TileTrap> trap_;
#endif
};

INSTANTIATE_TEST_SUITE_P(Tables, TilesTest, testing::ValuesIn(TilesCases()),
                         [](const auto& info) { return std::string(info.param.table->name); });

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

float Wide(uint16_t bits) {
  return Flush(static_cast<float>(ref::Element(&bits, StorageType::kBFloat16, 0)));
}

// Returns numbers of all magnitudes: some have no normal float as their product, some are not
// normal.
std::vector<uint16_t> Numbers(int64_t n, uint32_t seed) {
  std::vector<uint16_t> out;
  const std::vector<float> x = Random(n, seed);
  for (int64_t i = 0; i < n; ++i) {
    const int power = i % 7 == 0 ? -63 : i % 11 == 0 ? -127 : i % 13 == 0 ? 40 : 0;
    out.push_back(ref::ToBf16(std::ldexp(x[i], power)));
  }
  return out;
}

// Returns C plus A [n_rows, k] times B [k, n_cols], in the order that tile_products_inl.h states.
std::vector<float> WantProduct(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b,
                               int64_t n_rows, int64_t k, int64_t n_cols, std::vector<float> c) {
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_cols; ++j) {
      float& sum = c[i * n_cols + j];
      for (int64_t first = 0; first < k; first += kPairSteps) {
        float parts[2] = {0, 0};
        for (int64_t kk = first; kk < first + kPairSteps; ++kk) {
          float& part = parts[kk % 2];
          part = Flush(std::fmaf(Wide(a[i * k + kk]), Wide(b[kk * n_cols + j]), part));
        }
        sum = Flush(Flush(sum) + Flush(parts[0] + parts[1]));
      }
    }
  }
  return c;
}

TEST_P(TilesTest, ProductsHaveTheStatedOrder) {
  const int64_t panel = table().panel_columns;
  for (int64_t n_rows : {1, 2, 15, 16, 17, 33, 40, 64}) {
    for (int64_t k : {32, 96}) {
      for (int64_t n_cols : {panel, 2 * panel, 3 * panel}) {
        const std::vector<uint16_t> a = Numbers(n_rows * k, 1), b = Numbers(k * n_cols, 2);
        const std::vector<float> c = Random(n_rows * n_cols, 3);
        std::vector<uint16_t> pairs(k * n_cols);
        table().pack_pairs({b.data(), n_cols, k, n_cols, pairs.data()});
        for (const auto into : {GemmArgs::Into::kOverwrite, GemmArgs::Into::kAccumulate}) {
          const bool adds = into == GemmArgs::Into::kAccumulate;
          const std::vector<float> want =
              WantProduct(a, b, n_rows, k, n_cols, adds ? c : std::vector<float>(c.size()));
          std::vector<float> got = c, by_rows = c;
          table().gemm_bf16_pairs({a.data(), k, pairs.data(), 0, k * panel, got.data(), n_cols,
                                   n_rows, n_cols, k, into},
                                  pairs.data());
          table().gemm_bf16_row_pairs({a.data(), k, b.data(), n_cols, panel, by_rows.data(), n_cols,
                                       n_rows, n_cols, k, into},
                                      b.data());
          ASSERT_EQ(std::memcmp(got.data(), want.data(), 4 * got.size()), 0)
              << n_rows << " x " << k << " x " << n_cols;
          ASSERT_EQ(std::memcmp(by_rows.data(), want.data(), 4 * got.size()), 0)
              << n_rows << " x " << k << " x " << n_cols;
        }
      }
    }
  }
}

TEST_P(TilesTest, WhatIsNotFiniteStaysSo) {
  const int64_t panel = table().panel_columns, k = kPairSteps;
  std::vector<uint16_t> a = Numbers(3 * k, 1), b = Numbers(k * panel, 2);
  a[5] = 0x7f80;      // infinity in row 0
  a[k + 5] = 0x7fc0;  // NaN in row 1
  for (int64_t j = 1; j < panel; ++j) b[5 * panel + j] = ref::ToBf16(static_cast<float>(j));
  b[5 * panel] = 0;  // infinity times zero
  std::vector<uint16_t> pairs(b.size());
  table().pack_pairs({b.data(), panel, k, panel, pairs.data()});
  std::vector<float> c(3 * panel);
  table().gemm_bf16_pairs({a.data(), k, pairs.data(), 0, k * panel, c.data(), panel, 3, panel, k},
                          nullptr);
  EXPECT_TRUE(std::isnan(c[0]));
  for (int64_t j = 1; j < panel; ++j) {
    EXPECT_TRUE(std::isinf(c[j])) << j;
    EXPECT_TRUE(std::isnan(c[panel + j])) << j;
    EXPECT_TRUE(std::isfinite(c[2 * panel + j])) << j;
  }
}

// Rows that read one page after another, by the functions that attend_pairs says it computes.
struct AttendingRows {
  AttendingRows(const KernelTable& table, int64_t dim, int64_t n_rows)
      : table(table),
        dim(dim),
        n_rows(n_rows),
        states(RoundUp(n_rows, kUnitRows), SoftmaxState{-kInfinity, 0}),
        out(RoundUp(n_rows, kUnitRows) * dim) {}

  void AddPage(const AttendPairsArgs& page) {
    const int64_t panel = table.panel_columns;
    std::vector<float> scores(n_rows * kPageTokens);
    std::vector<uint16_t> weights(n_rows * kPageTokens);
    table.gemm_bf16_pairs({page.queries, dim, page.keys, 0, dim * panel, scores.data(), kPageTokens,
                           n_rows, kPageTokens, dim},
                          nullptr);
    for (int64_t r = 0; r < n_rows; ++r) {
      float* row = scores.data() + r * kPageTokens;
      for (int64_t i = 0; page.visible != nullptr && i < kPageTokens; ++i) {
        if (i < page.visible[r].begin || i >= page.visible[r].end) row[i] = -kInfinity;
      }
      table.weigh_rows(
          {row, weights.data() + r * kPageTokens, &states[r], out.data() + r * dim, dim, 1});
    }
    table.gemm_bf16_pairs({weights.data(), kPageTokens, page.values, 0, kPageTokens * panel,
                           out.data(), dim, n_rows, dim, kPageTokens, GemmArgs::Into::kAccumulate},
                          nullptr);
  }

  const KernelTable& table;
  const int64_t dim, n_rows;
  std::vector<SoftmaxState> states;
  std::vector<float> out;
};

std::vector<uint16_t> PackedPairs(const KernelTable& table, int64_t n_rows, int64_t n_cols,
                                  float scale, uint32_t seed) {
  std::vector<uint16_t> rounded, pairs(n_rows * n_cols);
  for (float x : Random(n_rows * n_cols, seed, scale)) rounded.push_back(ref::ToBf16(x));
  table.pack_pairs({rounded.data(), n_cols, n_rows, n_cols, pairs.data()});
  return pairs;
}

// Each row sees other tokens of the first page, the first one and every fifth none of them, and all
// tokens of the others.
TEST_P(TilesTest, AttentionHasTheBitsOfItsParts) {
  for (int64_t dim = kPairSteps; dim <= kMaxAttendDim; dim += kPairSteps) {
    for (int64_t n_rows : {1, 7, 16, 17, 48, 65}) {
      const int64_t n_padded = RoundUp(n_rows, kUnitRows);
      std::vector<uint16_t> queries;
      for (float x : Random(n_padded * dim, 3)) queries.push_back(ref::ToBf16(x));
      std::vector<PageSlots> visible(n_padded);
      for (int64_t r = 0; r < n_rows; ++r) visible[r] = {r % 5 * 9, r % 5 == 0 ? 0 : 40 + r % 25};
      AttendingRows want(table(), dim, n_rows), got(table(), dim, n_rows);
      for (uint32_t page = 0; page < 4; ++page) {
        const std::vector<uint16_t> keys = PackedPairs(table(), dim, kPageTokens, 1.0f + page,
                                                       10 + page),
                                    values =
                                        PackedPairs(table(), kPageTokens, dim, 1.0f, 20 + page);
        const AttendPairsArgs args{queries.data(),
                                   dim,
                                   keys.data(),
                                   values.data(),
                                   page == 0 ? visible.data() : nullptr,
                                   got.states.data(),
                                   got.out.data(),
                                   n_rows};
        table().attend_pairs(args);
        want.AddPage(args);
        for (int64_t r = 0; r < n_rows; ++r) {
          ASSERT_EQ(got.states[r].max, want.states[r].max) << r;
          ASSERT_EQ(got.states[r].sum, want.states[r].sum) << r;
        }
        ASSERT_EQ(std::memcmp(got.out.data(), want.out.data(), 4 * n_rows * dim), 0)
            << n_rows << " rows of " << dim << ", page " << page;
      }
    }
  }
}

TEST_P(TilesTest, RowsOfAttentionThatAreNotFiniteLeaveOthersAlone) {
  constexpr int64_t kDim = 64, kRows = 20;
  const auto attend = [&](std::optional<uint16_t> odd_number) {
    std::vector<uint16_t> queries;
    for (float x : Random(2 * kUnitRows * kDim, 3)) queries.push_back(ref::ToBf16(x));
    if (odd_number.has_value()) queries[3 * kDim + 5] = *odd_number;
    AttendingRows rows(table(), kDim, kRows);
    const std::vector<uint16_t> keys = PackedPairs(table(), kDim, kPageTokens, 1.0f, 1),
                                values = PackedPairs(table(), kPageTokens, kDim, 1.0f, 2);
    table().attend_pairs({queries.data(), kDim, keys.data(), values.data(), nullptr,
                          rows.states.data(), rows.out.data(), kRows});
    return rows;
  };
  const AttendingRows want = attend(std::nullopt);
  for (const uint16_t odd_number : {0x7f80, 0xff80, 0x7fc0}) {  // infinities, NaN
    const AttendingRows got = attend(odd_number);
    for (int64_t r = 0; r < kRows; ++r) {
      if (r == 3) {
        EXPECT_TRUE(std::isnan(got.states[r].sum)) << odd_number;
        continue;
      }
      EXPECT_EQ(got.states[r].sum, want.states[r].sum) << r;
      EXPECT_EQ(std::memcmp(&got.out[r * kDim], &want.out[r * kDim], 4 * kDim), 0) << r;
    }
  }
}

// Makes a weight of numbers, or of blocks that begin with one or two scales in half precision.
TensorView WeightOf(DType dtype, int64_t n_out, int64_t n_in, std::vector<std::byte>& bytes) {
  bytes.clear();
  if (dtype == DType::kF32) {
    const std::vector<float> numbers = Random(n_out * n_in, 1);
    bytes.resize(4 * numbers.size());
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
  } else {
    std::mt19937 rng(3);
    bytes.resize(n_out * n_in / DTypeBlockSize(dtype) * DTypeBytes(dtype));
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    for (size_t at = 0; at < bytes.size(); at += DTypeBytes(dtype)) {
      const uint16_t scales[2] = {FloatToHalf(0.01f), FloatToHalf(0.003f)};
      std::memcpy(&bytes[at], scales, dtype == DType::kQ4_K || dtype == DType::kQ5_K ? 4 : 2);
    }
  }
  return {dtype, {n_out, n_in}, bytes.data()};
}

// Compares a weight's product, in blocks and by several threads, with rows one by one on the
// portable table.
TEST_P(TilesTest, LinearHasThePortableBits) {
  const int64_t n_out = 70;
  ThreadPool one(1), two(2);
  const std::tuple<DType, WeightStorage, int64_t> forms[] = {
      {DType::kF32, {StorageType::kBFloat16}, 700},
      {DType::kF32, {StorageType::kInt8}, 700},
      {DType::kF32, {StorageType::kInt8}, 64},  // a group, and two, are shorter than their way
      {DType::kQ8_0, {StorageType::kBFloat16, true}, 32},
      {DType::kQ4_0, {StorageType::kBFloat16, true}, 64},
      {DType::kQ8_0, {StorageType::kBFloat16, true}, 768},
      {DType::kQ4_0, {StorageType::kBFloat16, true}, 768},
      {DType::kQ4_K, {StorageType::kBFloat16, true}, 768},
      {DType::kQ5_K, {StorageType::kBFloat16, true}, 256}};
  for (const auto& [dtype, storage, n_in] : forms) {
    std::vector<std::byte> bytes;
    const TensorView view = WeightOf(dtype, n_out, n_in, bytes);
    auto portable = PackedWeight::Pack({&view, 1}, storage, one, cpu::kPortableAmxTable);
    auto packed = PackedWeight::Pack({&view, 1}, storage, two, table());
    ASSERT_TRUE(portable.ok() && packed.ok());
    ASSERT_EQ(packed->n_out_padded(), portable->n_out_padded());
    const int64_t ldy = packed->n_out_padded();
    for (int64_t n_rows : {1, 3, 8, 17, 33, 530}) {
      const std::vector<float> x = Random(n_rows * n_in, 2);
      std::vector<float> got(n_rows * ldy);
      Linear(*packed, {x.data(), n_in}, n_rows, got.data(), ldy, two);
      for (int64_t i = 0; i < n_rows; i += std::max<int64_t>(1, n_rows / 5)) {
        std::vector<float> want(ldy);
        Linear(*portable, {x.data() + i * n_in, n_in}, 1, want.data(), ldy, one);
        ASSERT_EQ(std::memcmp(got.data() + i * ldy, want.data(), 4 * ldy), 0)
            << DTypeName(dtype) << ": row " << i << " of " << n_rows;
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
