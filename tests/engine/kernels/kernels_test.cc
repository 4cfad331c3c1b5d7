#include "engine/kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "engine/kernels/ref/ref.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> Random(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

// Elements of a right-hand side in fp32 or bf16.
struct Storage {
  Storage(StorageType type, const std::vector<float>& x) : wide(x) {
    if (type == StorageType::kFloat32) return;
    for (float v : x) narrow.push_back(ref::ToBf16(v));
  }
  const void* data() const {
    return narrow.empty() ? static_cast<const void*>(wide.data()) : narrow.data();
  }
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
};

struct KernelCase {
  const KernelTable* table;
  StorageType type;
  // Error of a sum relative to the sum of its terms' magnitudes. Both storage types are multiplied
  // in fp32, so one bound holds for both.
  double sum_tolerance;
  double row_tolerance;  // relative error of the row-wise functions
  // Relative error of a weight: a score minus the maximum is rounded, to 1e-5 where it is -160.
  double softmax_tolerance;
};

std::vector<KernelCase> AllCases() {
  std::vector<KernelCase> out;
  for (const KernelTable* table : AvailableKernels()) {
    out.push_back({table, StorageType::kFloat32, 1e-6, 2e-6, 1e-5});
    out.push_back({table, StorageType::kBFloat16, 1e-6, 2e-6, 1e-5});
  }
  return out;
}

std::string CaseName(const testing::TestParamInfo<KernelCase>& info) {
  const bool wide = info.param.type == StorageType::kFloat32;
  return std::string(info.param.table->name) + (wide ? "_fp32" : "_bf16");
}

class KernelTest : public testing::TestWithParam<KernelCase> {
 protected:
  const KernelTable& table() const { return *GetParam().table; }
};

INSTANTIATE_TEST_SUITE_P(Tables, KernelTest, testing::ValuesIn(AllCases()), CaseName);

// ------------------------------------------------------------------ products

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

  // Runs on a copy of C, guard columns included.
  std::vector<float> Run(int64_t first_row, int64_t n_rows) const {
    std::vector<float> c = c_;
    GemmArgs g = args_;
    g.a += first_row * g.lda;
    g.c = c.data() + first_row * g.ldc;
    g.n_rows = n_rows;
    case_.table->Gemm(case_.type, g);
    return c;
  }

  double Scale(int64_t row) const {
    double sum = 1e-30;
    for (int64_t k = 0; k < args_.k; ++k) sum += std::fabs(a_[row * args_.lda + k]);
    return 4 * sum + 4;  // |b| and |c| are below 4 or rare
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
    for (int64_t j = 0; j < p.n_cols; ++j) {
      ASSERT_NEAR(got[i * ldc + j], want[i * p.n_cols + j], param.sum_tolerance * problem.Scale(i))
          << i << ", " << j;
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
    g.a += k;
    g.b = static_cast<const std::byte*>(g.b) + k * panel * StorageBytes(GetParam().type);
    g.c = c.data();
    g.k = std::min<int64_t>(64, 257 - k);
    g.into = k == 0 ? GemmArgs::Into::kOverwrite : GemmArgs::Into::kAccumulate;
    table().Gemm(GetParam().type, g);
  }
  EXPECT_EQ(std::memcmp(c.data(), whole.data(), c.size() * 4), 0);
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
    table_.gemm_bf16_pairs({a, p_.k, pairs_.data(), p_.k * table_.panel_columns,
                            c.data() + first_row * p_.n_cols, p_.n_cols, n_rows, p_.n_cols, p_.k,
                            p_.into});
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
    for (int64_t k : {2, 64, 254, 258}) {
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
        table(), {n_rows, n_cols, 100, GemmArgs::Into::kAccumulate, Product::Layout::kPacked});
    const std::vector<float> together = problem.Run(0, n_rows);
    for (int64_t i = 0; i < n_rows; ++i) {
      const std::vector<float> alone = problem.Run(i, 1);
      ASSERT_EQ(std::memcmp(alone.data() + i * n_cols, together.data() + i * n_cols, n_cols * 4), 0)
          << "row " << i << " of " << n_rows;
    }
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

// ------------------------------------------------------------------ rows

constexpr int64_t kDims[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100, 127, 576};

void ExpectClose(const std::vector<float>& got, const std::vector<double>& want, double relative,
                 double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], relative * std::fabs(want[i]) + absolute) << i;
  }
}

TEST_P(KernelTest, RmsNormMatchesTheOracle) {
  for (int64_t dim : kDims) {
    const std::vector<float> x = Random(dim, 1, 3.0f), w = Random(dim, 2);
    std::vector<float> out(dim);
    table().rms_norm(x.data(), w.data(), 1e-5f, out.data(), dim);
    ExpectClose(out, ref::RmsNorm(x, w, 1e-5f), GetParam().row_tolerance, 0);
  }
}

TEST_P(KernelTest, RmsNormOfZerosIsZero) {
  const std::vector<float> x(33, 0.0f), w(33, 1.0f);
  std::vector<float> out(33, kNan);
  table().rms_norm(x.data(), w.data(), 1e-5f, out.data(), 33);
  EXPECT_EQ(out, x);
}

TEST_P(KernelTest, SiluMulMatchesTheOracleInPlaceToo) {
  for (int64_t dim : kDims) {
    const std::vector<float> gate = Random(dim, 1, 8.0f), up = Random(dim, 2);
    const std::vector<double> want = ref::SiluMul(gate, up);
    std::vector<float> out(dim), onto_gate = gate, onto_up = up;
    table().silu_mul(gate.data(), up.data(), out.data(), dim);
    ExpectClose(out, want, GetParam().row_tolerance, 0);
    table().silu_mul(onto_gate.data(), up.data(), onto_gate.data(), dim);
    table().silu_mul(gate.data(), onto_up.data(), onto_up.data(), dim);
    EXPECT_EQ(onto_gate, out);
    EXPECT_EQ(onto_up, out);
  }
}

TEST_P(KernelTest, SiluMulStaysFiniteAtTheEnds) {
  const std::vector<float> gate = {-1e30f, -1000, -100, -88, -20, 0, 20, 88, 100, 1000, 1e30f},
                           up(gate.size(), 1.0f);
  std::vector<float> out(gate.size());
  table().silu_mul(gate.data(), up.data(), out.data(), static_cast<int64_t>(gate.size()));
  // Far below zero exp is cut at e^88: gate / e^88 instead of 0.
  ExpectClose(out, ref::SiluMul(gate, up), GetParam().row_tolerance, 1e-8);
}

TEST_P(KernelTest, AddAndScaleAreElementwise) {
  for (int64_t n : kDims) {
    const std::vector<float> x = Random(n, 1), y = Random(n, 2);
    std::vector<float> sum = y, scaled = x;
    table().add(x.data(), sum.data(), n);
    table().scale(0.3f, scaled.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(sum[i], y[i] + x[i]);
      EXPECT_EQ(scaled[i], x[i] * 0.3f);
    }
  }
}

TEST_P(KernelTest, RopeMatchesTheOracle) {
  for (int64_t head_dim : {2, 6, 8, 20, 32, 64, 80, 128}) {
    for (int64_t n_heads : {1, 3, 8}) {
      const std::vector<float> angle = Random(head_dim / 2, 1, 10.0f);
      std::vector<float> cos, sin, x = Random(n_heads * head_dim, 2);
      for (float a : angle) cos.push_back(std::cos(a)), sin.push_back(std::sin(a));
      const std::vector<double> want = ref::Rope(x, cos, sin);
      table().rope(x.data(), cos.data(), sin.data(), n_heads, head_dim);
      ExpectClose(x, want, 0, 1e-6);
    }
  }
}

// ------------------------------------------------------------------ softmax

// The online softmax over tiles of `tile` scores: weights as if all had been there at once.
std::vector<float> OnlineSoftmax(const KernelTable& table, std::vector<float> scores,
                                 int64_t tile) {
  SoftmaxState state{-kInf, 0};
  const auto n = static_cast<int64_t>(scores.size());
  for (int64_t at = 0; at < n; at += tile) {
    const SoftmaxUpdate update = table.softmax_update(scores.data() + at, tile, &state);
    for (int64_t i = 0; i < at; ++i) scores[i] *= update.factor;
  }
  for (float& s : scores) s /= state.sum;
  return scores;
}

TEST_P(KernelTest, SoftmaxInTilesMatchesTheOracle) {
  for (int64_t tile : {16, 32, 64, 256}) {
    for (float spread : {0.1f, 3.0f, 20.0f}) {
      const std::vector<float> scores = Random(4 * tile, 1, spread);
      ExpectClose(OnlineSoftmax(table(), scores, tile), ref::Softmax(scores),
                  GetParam().softmax_tolerance, 1e-37);
    }
  }
}

TEST_P(KernelTest, ExpIsAccurateOverItsWholeRange) {
  // One score of 0 is the maximum: the other weights are exp(score) / sum.
  for (float low = -87.0f; low < 0.0f; low += 0.37f) {
    std::vector<float> scores(16);
    for (int i = 1; i < 16; ++i) scores[i] = std::min(0.0f, low + 0.023f * static_cast<float>(i));
    SoftmaxState state{-kInf, 0};
    std::vector<float> weights = scores;
    table().softmax_update(weights.data(), 16, &state);
    for (int i = 0; i < 16; ++i) {
      const double want = std::exp(static_cast<double>(scores[i]));
      ASSERT_NEAR(weights[i] / want, 1.0, 3e-7) << scores[i];
    }
  }
}

TEST_P(KernelTest, ExpBelowItsRangeIsExactlyZero) {
  std::vector<float> scores(16, -87.5f);
  scores[0] = 0.0f, scores[1] = -1000.0f, scores[2] = -3e38f, scores[3] = -kInf;
  SoftmaxState state{-kInf, 0};
  table().softmax_update(scores.data(), 16, &state);
  EXPECT_EQ(scores[0], 1.0f);
  for (int i = 1; i < 16; ++i) EXPECT_EQ(scores[i], 0.0f) << i;
  EXPECT_EQ(state.sum, 1.0f);
}

TEST_P(KernelTest, TileOfHiddenScoresChangesNothing) {
  const std::vector<float> hidden(64, -kInf);
  SoftmaxState state{-kInf, 0};
  std::vector<float> tile = hidden;
  SoftmaxUpdate update = table().softmax_update(tile.data(), 64, &state);
  EXPECT_EQ(tile, std::vector<float>(64, 0.0f));
  EXPECT_EQ(update.factor, 1.0f);
  EXPECT_EQ(update.sum, 0.0f);
  EXPECT_EQ(state.max, -kInf);

  std::vector<float> scores = Random(64, 1);
  update = table().softmax_update(scores.data(), 64, &state);
  EXPECT_EQ(update.factor, 0.0f);  // nothing was accumulated before
  const SoftmaxState before = state;
  tile = hidden;
  update = table().softmax_update(tile.data(), 64, &state);
  EXPECT_EQ(tile, std::vector<float>(64, 0.0f));
  EXPECT_EQ(update.factor, 1.0f);
  EXPECT_EQ(state.max, before.max);
  EXPECT_EQ(state.sum, before.sum);
}

TEST_P(KernelTest, MaskedLanesWeighExactlyNothing) {
  for (int64_t n_visible = 1; n_visible <= 64; ++n_visible) {
    std::vector<float> scores = Random(64, 1, 5.0f);
    std::fill(scores.begin() + n_visible, scores.end(), -kInf);
    const std::vector<float> weights = OnlineSoftmax(table(), scores, 64);
    for (int64_t i = n_visible; i < 64; ++i) ASSERT_EQ(weights[i], 0.0f);
    ExpectClose(weights, ref::Softmax(scores), GetParam().softmax_tolerance, 1e-37);
  }
}

TEST_P(KernelTest, SoftmaxSurvivesHugeScores) {
  std::vector<float> scores(48, -3e38f);
  scores[40] = 3e38f;
  std::vector<float> weights = OnlineSoftmax(table(), scores, 16);
  for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(weights[i], i == 40 ? 1.0f : 0.0f);
  const std::vector<float> equal(32, 1e30f);
  weights = OnlineSoftmax(table(), equal, 16);
  for (float w : weights) EXPECT_EQ(w, 1.0f / 32);
}

TEST_P(KernelTest, ScoreThatIsNotANumberReachesTheSum) {
  for (int at : {0, 5, 63}) {
    std::vector<float> scores = Random(64, 1), later = Random(64, 2);
    scores[at] = kNan;
    SoftmaxState state{-kInf, 0};
    table().softmax_update(scores.data(), 64, &state);
    EXPECT_TRUE(std::isnan(state.sum)) << at;
    table().softmax_update(later.data(), 64, &state);
    EXPECT_TRUE(std::isnan(state.sum)) << at;
  }
}

// ------------------------------------------------------------------ bfloat16

TEST_P(KernelTest, ToBf16MatchesTheOracleOnEveryUpperHalf) {
  std::vector<float> x;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      x.push_back(std::bit_cast<float>(upper << 16 | lower));
    }
  }
  std::vector<uint16_t> out(x.size());
  table().to_bf16(x.data(), out.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(out[i], ref::ToBf16(x[i])) << std::hex << std::bit_cast<uint32_t>(x[i]);
  }
}

TEST_P(KernelTest, ToBf16KeepsNanAndInfinity) {
  const float x[] = {kNan, -kNan, kInf, -kInf, std::bit_cast<float>(0x7f800001u)};
  uint16_t out[5];
  table().to_bf16(x, out, 5);
  for (int i : {0, 1, 4}) EXPECT_TRUE((out[i] & 0x7fff) > 0x7f80) << i;
  EXPECT_EQ(out[2], 0x7f80);
  EXPECT_EQ(out[3], 0xff80);
}

// ------------------------------------------------------------------ tables

TEST(AvailableKernels, StartsWithThePortableTable) {
  ASSERT_FALSE(AvailableKernels().empty());
  EXPECT_EQ(AvailableKernels().front()->name, "portable");
}

TEST(AvailableKernels, HoldsTheTableInUse) {
  bool found = false;
  for (const KernelTable* t : AvailableKernels()) found = found || t == &Kernels();
  EXPECT_TRUE(found);
}

TEST(AvailableKernels, PanelsDivideAPage) {
  for (const KernelTable* t : AvailableKernels()) EXPECT_EQ(64 % t->panel_columns, 0) << t->name;
}

}  // namespace
}  // namespace lowkey
