// The products of every kernel table.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/base/round_up.h"
#include "engine/kernels/coded_weight.h"
#include "tests/engine/kernels/kernels_testing.h"
#include "tests/engine/kernels/ref/ref.h"

namespace lowkey {
namespace {

INSTANTIATE_TEST_SUITE_P(Tables, KernelTest, testing::ValuesIn(AllKernelCases()), KernelCaseName);

// Elements of a right-hand side in fp32, bf16 or int8 (32 to the unit).
struct Storage {
  Storage(StorageType type, const std::vector<float>& x) : wide(x) {
    if (type == StorageType::kBFloat16) {
      for (float v : x) narrow.push_back(ref::ToBf16(v));
    } else if (type == StorageType::kInt8) {
      for (float v : x) {
        bytes.push_back(static_cast<int8_t>(std::clamp(std::round(32 * v), -127.0f, 127.0f)));
      }
    }
  }
  const void* data() const {
    if (!bytes.empty()) return bytes.data();
    return narrow.empty() ? static_cast<const void*>(wide.data()) : narrow.data();
  }
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
  std::vector<int8_t> bytes;
};

struct Product {
  int64_t n_rows, n_cols, k;
  GemmArgs::Into into;
  enum class Layout { kPacked, kRowMajor } layout;
};

class GemmProblem {
 public:
  GemmProblem(const KernelCase& c, const Product& p)
      : case_(c),
        a_(Random(p.n_rows * (p.k + 3), 1)),
        b_(c.type, Random(p.n_cols * p.k, 2)),
        c_(Random(p.n_rows * (p.n_cols + 5), 3)) {
    const int64_t panel = c.table->panel_columns;
    args_ = {a_.data(),    p.k + 3,  b_.data(), panel, panel * p.k, c_.data(),
             p.n_cols + 5, p.n_rows, p.n_cols,  p.k,   p.into};
    if (p.layout == Product::Layout::kRowMajor) {
      args_.b_row_stride = p.n_cols;
      args_.b_panel_stride = panel;
    }
  }

  const GemmArgs& args() const { return args_; }
  const std::vector<float>& initial_c() const { return c_; }

  // Runs on a copy of C with its guard columns.
  std::vector<float> Run(int64_t first_row, int64_t n_rows) const {
    std::vector<float> c = c_;
    GemmArgs g = args_;
    g.a = a_.data() + first_row * g.lda;
    g.c = c.data() + first_row * g.ldc;
    g.n_rows = n_rows;
    case_.table->Gemm(case_.type, g);
    return c;
  }

  // Returns a bound of the sum of magnitudes of a row's terms.
  double Scale(int64_t row) const {
    double sum = 1e-30, largest = 4;  // |c| is below 4 or rare
    for (int64_t k = 0; k < args_.k; ++k) sum += std::fabs(a_[row * args_.lda + k]);
    for (int64_t i = 0; i < args_.n_cols * args_.k; ++i) {
      largest = std::max(largest, std::fabs(ref::Element(b_.data(), case_.type, i)));
    }
    return largest * sum + 4;
  }

 private:
  KernelCase case_;
  std::vector<float> a_;
  Storage b_;
  std::vector<float> c_;
  GemmArgs args_;
};

void ExpectGemmMatches(const KernelCase& param, const Product& p) {
  SCOPED_TRACE(testing::Message() << p.n_rows << " x " << p.n_cols << " x " << p.k);
  const GemmProblem problem(param, p);
  const std::vector<double> want =
      ref::Gemm(param.type, param.table->panel_columns, problem.args());
  const std::vector<float> got = problem.Run(0, p.n_rows);
  const int64_t ldc = problem.args().ldc;
  for (int64_t i = 0; i < p.n_rows; ++i) {
    const double tolerance = param.sum_tolerance * problem.Scale(i);
    for (int64_t j = 0; j < p.n_cols; ++j) {
      ASSERT_NEAR(got[i * ldc + j], want[i * p.n_cols + j], tolerance) << i << ", " << j;
    }
    for (int64_t j = p.n_cols; j < ldc; ++j) {
      ASSERT_EQ(got[i * ldc + j], problem.initial_c()[i * ldc + j]) << "wrote past the columns";
    }
  }
}

TEST_P(KernelTest, GemmMatchesTheOracleAtOddSizes) {
  for (int64_t n_rows = 1; n_rows <= 17; ++n_rows) {
    for (int64_t k : {1, 63, 256, 257}) {
      for (int64_t n_panels : {1, 3, 4, 5, 9}) {
        const auto layout =
            (n_rows + n_panels) % 2 == 0 ? Product::Layout::kPacked : Product::Layout::kRowMajor;
        const auto into =
            (n_rows + k) % 2 == 0 ? GemmArgs::Into::kAccumulate : GemmArgs::Into::kOverwrite;
        ExpectGemmMatches(GetParam(), {n_rows, n_panels * table().panel_columns, k, into, layout});
      }
    }
  }
}

TEST_P(KernelTest, GemmOfNoRowsWritesNothing) {
  const GemmProblem problem(GetParam(), {1, table().panel_columns, 8, GemmArgs::Into::kOverwrite,
                                         Product::Layout::kPacked});
  EXPECT_EQ(problem.Run(0, 0), problem.initial_c());
}

TEST_P(KernelTest, GemmRowsHaveTheSameBitsAloneAndTogether) {
  for (int64_t n_rows = 1; n_rows <= 40; ++n_rows) {
    const GemmProblem problem(GetParam(),
                              {n_rows, 5 * table().panel_columns, 100, GemmArgs::Into::kAccumulate,
                               Product::Layout::kRowMajor});
    const std::vector<float> together = problem.Run(0, n_rows);
    const int64_t ldc = problem.args().ldc;
    for (int64_t i = 0; i < n_rows; ++i) {
      const std::vector<float> alone = problem.Run(i, 1);
      ASSERT_EQ(std::memcmp(alone.data() + i * ldc, together.data() + i * ldc, ldc * 4), 0)
          << "row " << i << " of " << n_rows;
    }
  }
}

TEST_P(KernelTest, GemmInPiecesOfKHasTheSameBits) {
  const int64_t panel = table().panel_columns;
  const GemmProblem problem(
      GetParam(), {7, 3 * panel, 257, GemmArgs::Into::kOverwrite, Product::Layout::kPacked});
  const std::vector<float> whole = problem.Run(0, 7);
  std::vector<float> c = problem.initial_c();
  for (int64_t k = 0; k < 257; k += 64) {
    GemmArgs g = problem.args();
    g.a = static_cast<const float*>(g.a) + k;
    g.b = static_cast<const std::byte*>(g.b) + k * panel * StorageBytes(GetParam().type);
    g.c = c.data();
    g.k = std::min<int64_t>(64, 257 - k);
    g.into = k == 0 ? GemmArgs::Into::kOverwrite : GemmArgs::Into::kAccumulate;
    table().Gemm(GetParam().type, g);
  }
  EXPECT_EQ(std::memcmp(c.data(), whole.data(), c.size() * 4), 0);
}

// Column groups widened to middle + scale * code have the bits of a product with the codes.
TEST_P(KernelTest, GroupedGemmHasTheBitsOfGemmWithWhatItWidens) {
  if (GetParam().type != StorageType::kInt8) return;
  const int64_t panel = table().panel_columns, k = 37;
  for (int64_t n_rows : {1, 2, 3, 4, 6, 7, 13}) {
    for (int64_t n_cols = panel; n_cols <= 96; n_cols += panel) {
      const int64_t n_groups = (n_cols + 31) / 32, stride = k + 3;
      const std::vector<float> a = Random(n_rows * k, 1);
      const Storage codes(StorageType::kInt8, Random(k * n_cols, 2));
      const std::vector<float> scales = Random(n_groups * stride, 4, 0.01f);
      const std::vector<float> middles = Random(n_groups * stride, 5);
      const auto* code = reinterpret_cast<const int8_t*>(codes.bytes.data());
      const ColumnGroups groups{code, n_cols, 32, scales.data(), middles.data(), stride};
      std::vector<float> wide(k * n_cols);
      table().widen_groups(groups, k, n_cols, wide.data());
      for (int64_t i = 0; i < k * n_cols; ++i) {
        const int64_t at = i % n_cols / 32 * stride + i / n_cols;
        ASSERT_NEAR(wide[i], middles[at] + scales[at] * static_cast<double>(code[i]), 1e-6);
      }
      for (const auto into : {GemmArgs::Into::kOverwrite, GemmArgs::Into::kAccumulate}) {
        std::vector<float> want = Random(n_rows * (n_cols + 2), 3), got = want;
        GemmArgs g{a.data(),   k,      wide.data(), n_cols, panel, want.data(),
                   n_cols + 2, n_rows, n_cols,      k,      into};
        table().gemm_f32(g, nullptr);
        g.b = nullptr;
        g.c = got.data();
        table().grouped_gemm(g, groups, {code, k * n_cols});
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
            << n_rows << " x " << n_cols;
      }
    }
  }
}

// A [n_rows, k] in the type that the table multiplies, times B [k, n_cols] packed in pairs.
class PairsProblem {
 public:
  PairsProblem(const KernelTable& table, const Product& p)
      : table_(table), p_(p), c_(Random(p.n_rows * p.n_cols, 3)) {
    a_ = Random(p.n_rows * p.k, 1);
    for (float x : a_) narrow_a_.push_back(ref::ToBf16(x));
    if (table.rounds_activations) {
      for (size_t i = 0; i < a_.size(); ++i) {
        a_[i] = static_cast<float>(ref::Element(narrow_a_.data(), StorageType::kBFloat16, i));
      }
    }
    for (float x : Random(p.k * p.n_cols, 2)) row_major_.push_back(ref::ToBf16(x));
    const int64_t panel = table.panel_columns;
    for (int64_t first = 0; first < p.n_cols; first += panel) {
      for (int64_t i = 0; i < p.k * panel; ++i) {
        const int64_t pair = i / (2 * panel), column = i / 2 % panel;
        pairs_.push_back(row_major_[(2 * pair + i % 2) * p.n_cols + first + column]);
      }
    }
  }

  std::vector<double> Want() const {
    std::vector<float> c = c_;
    return ref::Gemm(StorageType::kBFloat16, table_.panel_columns,
                     {a_.data(), p_.k, row_major_.data(), p_.n_cols, table_.panel_columns, c.data(),
                      p_.n_cols, p_.n_rows, p_.n_cols, p_.k, p_.into});
  }
  std::vector<float> Run(int64_t first_row, int64_t n_rows) const {
    std::vector<float> c = c_;
    const void* a = table_.rounds_activations
                        ? static_cast<const void*>(narrow_a_.data() + first_row * p_.k)
                        : a_.data() + first_row * p_.k;
    table_.gemm_bf16_pairs(
        {a, p_.k, pairs_.data(), 0, p_.k * table_.panel_columns, c.data() + first_row * p_.n_cols,
         p_.n_cols, n_rows, p_.n_cols, p_.k, p_.into},
        nullptr);
    return c;
  }

 private:
  const KernelTable& table_;
  Product p_;
  std::vector<float> a_, c_;
  std::vector<uint16_t> narrow_a_, row_major_, pairs_;
};

TEST_P(KernelTest, GemmOfPairsMatchesTheOracleAtOddSizes) {
  if (GetParam().type != StorageType::kBFloat16) return;  // pairs are always bf16
  for (int64_t n_rows = 1; n_rows <= 17; ++n_rows) {
    for (int64_t k : {32, 64, 256, 288}) {
      for (int64_t n_panels : {1, 3, 4, 5}) {
        const auto into =
            n_rows % 2 == 0 ? GemmArgs::Into::kAccumulate : GemmArgs::Into::kOverwrite;
        const PairsProblem problem(
            table(), {n_rows, n_panels * table().panel_columns, k, into, Product::Layout::kPacked});
        const std::vector<double> want = problem.Want();
        const std::vector<float> got = problem.Run(0, n_rows);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], want[i], GetParam().sum_tolerance * 4 * (k + 1))
              << n_rows << " rows, k " << k;
        }
      }
    }
  }
}

TEST_P(KernelTest, GemmOfPairsRowsHaveTheSameBitsAloneAndTogether) {
  if (GetParam().type != StorageType::kBFloat16) return;  // pairs are always bf16
  const int64_t n_cols = 5 * table().panel_columns;
  for (int64_t n_rows = 1; n_rows <= 40; ++n_rows) {
    const PairsProblem problem(
        table(), {n_rows, n_cols, 96, GemmArgs::Into::kAccumulate, Product::Layout::kPacked});
    const std::vector<float> together = problem.Run(0, n_rows);
    for (int64_t i = 0; i < n_rows; ++i) {
      const std::vector<float> alone = problem.Run(i, 1);
      ASSERT_EQ(std::memcmp(alone.data() + i * n_cols, together.data() + i * n_cols, n_cols * 4), 0)
          << "row " << i << " of " << n_rows;
    }
  }
}

// Rows of B in pairs, and rows that are packed in pairs first, give the same bits, whatever stands
// in rows behind an odd number of them.
TEST_P(KernelTest, GemmOfRowPairsHasTheBitsOfGemmOfPairs) {
  if (GetParam().type != StorageType::kBFloat16) return;
  EXPECT_EQ(table().gemm_bf16_row_pairs != nullptr, table().rounds_activations);
  if (!table().rounds_activations) return;
  const int64_t panel = table().panel_columns;
  for (int64_t n_rows : {1, 2, 3, 5, 6, 13}) {
    for (int64_t k : {1, 2, 37, 64}) {
      for (int64_t n_cols = panel; n_cols <= 5 * panel; n_cols += panel) {
        const int64_t padded_k = RoundUp(k, kPairSteps), stride = n_cols + 3;
        std::vector<uint16_t> a(n_rows * padded_k), b((k + 1) * stride, 0x7fc0), pairs;
        table().to_bf16(Random(a.size(), 1).data(), a.data(), a.size());
        for (int64_t i = 0; i < n_rows; ++i) {
          std::fill_n(a.begin() + i * padded_k + k, padded_k - k, 0);
        }
        table().to_bf16(Random(k * stride, 2).data(), b.data(), k * stride);
        pairs.resize(padded_k * n_cols);
        table().pack_pairs({b.data(), stride, k, n_cols, pairs.data()});
        for (const auto into : {GemmArgs::Into::kOverwrite, GemmArgs::Into::kAccumulate}) {
          std::vector<float> want = Random(n_rows * n_cols, 3), got = want;
          table().gemm_bf16_pairs({a.data(), padded_k, pairs.data(), 0, padded_k * panel,
                                   want.data(), n_cols, n_rows, n_cols, padded_k, into},
                                  nullptr);
          table().gemm_bf16_row_pairs({a.data(), padded_k, b.data(), stride, panel, got.data(),
                                       n_cols, n_rows, n_cols, k, into},
                                      nullptr);
          ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0)
              << n_rows << " x " << k << " x " << n_cols;
        }
      }
    }
  }
}

// Codes that are widened and rounded for few rows, in pairs for many, and by hand give the same
// bits.
TEST_P(KernelTest, GroupedPairsHaveTheBitsOfRoundedNumbers) {
  if (GetParam().type != StorageType::kInt8) return;
  EXPECT_EQ(table().grouped_gemm_pairs != nullptr, table().rounds_activations);
  if (!table().rounds_activations) return;
  const int64_t panel = table().panel_columns;
  for (int64_t n_rows : {1, 2, 3, 5, 6, 13}) {
    for (const auto& [k, n_cols] :
         {std::pair<int64_t, int64_t>{2, 32}, {20, 64}, {64, 96}, {128, 128}}) {
      const int64_t n_groups = n_cols / 32, padded_k = RoundUp(k, kPairSteps);
      std::vector<int8_t> codes(k * n_cols);
      for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(i * 37 % 256);
      const std::vector<float> scales = Random(n_groups * k, 1, 0.02f),
                               middles = Random(n_groups * k, 2);
      const ColumnGroups groups{codes.data(), 32, 32 * k, scales.data(), middles.data(), k};
      std::vector<float> wide(k * n_cols);
      table().widen_groups(groups, k, n_cols, wide.data());
      std::vector<uint16_t> a(n_rows * padded_k), rounded(wide.size()),
          want_pairs(padded_k * n_cols), pairs(want_pairs.size());
      for (int64_t i = 0; i < n_rows; ++i) {
        table().to_bf16(Random(k, 3 + i).data(), a.data() + i * padded_k, k);
      }
      table().to_bf16(wide.data(), rounded.data(), wide.size());
      table().pack_pairs({rounded.data(), n_cols, k, n_cols, want_pairs.data()});
      table().widen_group_pairs(groups, k, n_cols, pairs.data());
      ASSERT_EQ(pairs, want_pairs);
      for (const auto into : {GemmArgs::Into::kOverwrite, GemmArgs::Into::kAccumulate}) {
        std::vector<float> want = Random(n_rows * n_cols, 4), got = want;
        table().gemm_bf16_pairs({a.data(), padded_k, pairs.data(), 0, padded_k * panel, want.data(),
                                 n_cols, n_rows, n_cols, padded_k, into},
                                nullptr);
        table().grouped_gemm_pairs(
            {a.data(), padded_k, nullptr, 0, 0, got.data(), n_cols, n_rows, n_cols, k, into},
            groups, {codes.data(), k * n_cols});
        ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * 4), 0)
            << n_rows << " x " << k << " x " << n_cols;
      }
    }
  }
}

// Groups coded one by one never meet the code for several groups at once.
TEST_P(KernelTest, ARowIsCodedAsItsGroupsAreOneByOne) {
  constexpr int64_t kGroup = 32, kGroups = 27;
  std::vector<float> x = Random(kGroups * kGroup, 4);
  std::fill_n(x.begin() + 9 * kGroup, kGroup, 0.0f);
  std::fill_n(x.begin() + 10 * kGroup, kGroup, 1e-31f);
  x[20 * kGroup + 5] = std::numeric_limits<float>::infinity();
  x[21 * kGroup + 31] = std::numeric_limits<float>::quiet_NaN();
  struct Coded {
    std::vector<std::byte> codes = std::vector<std::byte>(kGroups * kGroup);
    std::vector<float> scales = std::vector<float>(kGroups), sums = scales;
    std::vector<int32_t> starts = std::vector<int32_t>(kGroups);
    CodedRows From(int64_t g) {
      return {codes.data() + g * kGroup, &scales[g], &sums[g], &starts[g]};
    }
  };
  for (CodeFormat format : {CodeFormat::kQ4_0, CodeFormat::kQ8_0}) {
    Coded whole, parts;
    table().code_row(format, x.data(), kGroups * kGroup - 7, whole.From(0));
    for (int64_t g = 0; g < kGroups; ++g) {
      const int64_t n = g + 1 < kGroups ? kGroup : kGroup - 7;
      table().code_row(format, &x[g * kGroup], n, parts.From(g));
    }
    EXPECT_EQ(whole.codes, parts.codes);
    EXPECT_EQ(std::memcmp(whole.scales.data(), parts.scales.data(), kGroups * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(whole.sums.data(), parts.sums.data(), kGroups * sizeof(float)), 0);
    EXPECT_EQ(whole.starts, parts.starts);
    EXPECT_TRUE(std::isnan(whole.scales[20]) && std::isnan(whole.scales[21]));
  }
}

TEST_P(KernelTest, DotRowsMatchesTheOracle) {
  for (int64_t k : {32, 64, 96, 256}) {
    for (int64_t n_dots : {1, 2, 3, 4, 5, 7, 16, 33}) {
      for (int64_t n_rows : {1, 3, 17}) {
        const std::vector<float> a = Random(n_rows * (k + 3), 1);
        const Storage b(GetParam().type, Random(n_dots * k, 2));
        const int64_t ld = n_dots + 2;
        std::vector<float> out = Random(n_rows * ld, 3);
        const std::vector<float> before = out;
        const DotRowsArgs g{a.data(), k + 3, b.data(), out.data(), ld, n_rows, n_dots, k};
        const std::vector<double> want = ref::DotRows(GetParam().type, g);
        table().DotRows(GetParam().type, g);
        for (int64_t i = 0; i < n_rows; ++i) {
          for (int64_t j = 0; j < n_dots; ++j) {
            ASSERT_NEAR(out[i * ld + j], want[i * n_dots + j], GetParam().sum_tolerance * 4 * k)
                << n_rows << " x " << n_dots << " x " << k;
          }
          ASSERT_EQ(out[i * ld + n_dots], before[i * ld + n_dots]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
