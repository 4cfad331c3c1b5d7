#include "engine/kernels/kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/base/dtype.h"
#include "engine/kernels/sampling_arithmetic.h"
#include "tests/engine/kernels/kernels_testing.h"
#include "tests/engine/kernels/ref/ref.h"

namespace lowkey {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(Tables, KernelTest, testing::ValuesIn(AllKernelCases()), KernelCaseName);

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

TEST_P(KernelTest, RotateColumnsIsRopeOfEveryColumn) {
  for (int64_t d : {2, 20, 64, 128}) {
    const std::vector<float> angle = Random(d / 2 * 64, 1, 10.0f), x = Random(d * 64, 2);
    std::vector<float> cos, sin, wide(d * 64);
    for (float a : angle) cos.push_back(std::cos(a)), sin.push_back(std::sin(a));
    std::vector<uint16_t> narrow(d * 64);
    table().to_bf16(x.data(), narrow.data(), d * 64);
    std::vector<float> from_bf16(d * 64);
    table().RotateColumns(StorageType::kFloat32,
                          {x.data(), cos.data(), sin.data(), wide.data(), d});
    table().RotateColumns(StorageType::kBFloat16,
                          {narrow.data(), cos.data(), sin.data(), from_bf16.data(), d});
    for (int64_t t = 0; t < 64; ++t) {
      const auto column = [&](const auto& m, int64_t n_rows) {
        std::vector<float> out;
        for (int64_t j = 0; j < n_rows; ++j) out.push_back(m[j * 64 + t]);
        return out;
      };
      const std::vector<float> c = column(cos, d / 2), s = column(sin, d / 2);
      ExpectClose(column(wide, d), ref::Rope(column(x, d), c, s), 0, 1e-6);
      ExpectClose(column(from_bf16, d), ref::Rope(column(x, d), c, s), 0, 0.02);
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

// The weights are softmax_update's to 1e-5 of each, rounded, and the sum is what they add up to.
TEST_P(KernelTest, RoundedSoftmaxSumsItsRoundedWeights) {
  EXPECT_EQ(table().weigh_rows != nullptr, table().rounds_activations);
  if (!table().rounds_activations) return;
  std::vector<uint16_t> rounded(64);
  SoftmaxState state{-kInf, 0};
  float out = 1;
  table().weigh_rows({std::vector<float>(64, -kInf).data(), rounded.data(), &state, &out, 1, 1});
  EXPECT_EQ(rounded, std::vector<uint16_t>(64, 0));
  EXPECT_EQ(state.max, -kInf);
  EXPECT_EQ(state.sum, 0.0f);
  SoftmaxState exact_state = state;
  double sum = 0;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    const std::vector<float> scores = Random(64, seed, 3.0f);
    std::vector<float> exact = scores;
    const SoftmaxUpdate want = table().softmax_update(exact.data(), 64, &exact_state);
    out = 1;
    table().weigh_rows({scores.data(), rounded.data(), &state, &out, 1, 1});
    EXPECT_EQ(out, want.factor);
    EXPECT_EQ(state.max, exact_state.max);
    sum *= want.factor;
    for (int64_t i = 0; i < 64; ++i) {
      EXPECT_GE(rounded[i], ToBFloat16(exact[i] * (1 - 1e-5f)).bits) << i;
      EXPECT_LE(rounded[i], ToBFloat16(exact[i] * (1 + 1e-5f)).bits) << i;
      sum += ToFloat(BFloat16{rounded[i]});
    }
    EXPECT_NEAR(state.sum / sum, 1, 1e-6);
  }
}

// The third row of every five sees nothing of the first page, the others some of it.
TEST_P(KernelTest, RowsThatAreWeighedTogetherHaveTheBitsOfEachAlone) {
  if (!table().rounds_activations) return;
  constexpr int64_t kValues = 32;
  for (int64_t n_rows : {1, 15, 16, 17, 48, 50}) {
    std::vector<SoftmaxState> together(n_rows, SoftmaxState{-kInf, 0}), alone = together;
    std::vector<uint16_t> weights(n_rows * 64), weight(64);
    std::vector<float> out = Random(n_rows * kValues, 9), row_out = out;
    for (uint32_t page = 0; page < 3; ++page) {
      std::vector<float> scores = Random(n_rows * 64, 10 + page, 1.0f + 4.0f * page);
      for (int64_t r = 0; page == 0 && r < n_rows; ++r) {
        std::fill_n(scores.begin() + r * 64 + (r % 5 == 2 ? 0 : 64 - r % 64),
                    r % 5 == 2 ? 64 : r % 64, -kInf);
      }
      table().weigh_rows(
          {scores.data(), weights.data(), together.data(), out.data(), kValues, n_rows});
      for (int64_t r = 0; r < n_rows; ++r) {
        table().weigh_rows({scores.data() + r * 64, weight.data(), &alone[r],
                            row_out.data() + r * kValues, kValues, 1});
        ASSERT_EQ(std::memcmp(weight.data(), weights.data() + r * 64, 128), 0) << r;
        ASSERT_EQ(std::memcmp(&alone[r], &together[r], sizeof(SoftmaxState)), 0) << r;
      }
      ASSERT_EQ(std::memcmp(out.data(), row_out.data(), out.size() * sizeof(float)), 0);
    }
  }
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

TEST_P(KernelTest, UnpackCodesTakesTheLowBitsFirst) {
  std::vector<uint8_t> packed(80);
  for (size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<uint8_t>(37 * i);
  std::vector<int8_t> out(160);
  table().unpack_codes(4, packed.data(), out.data(), 160);
  for (int i = 0; i < 160; ++i) EXPECT_EQ(out[i], (packed[i % 80] >> (i / 80 * 4) & 15) - 8) << i;
  table().unpack_codes(2, packed.data(), out.data(), 160);
  for (int i = 0; i < 160; ++i) EXPECT_EQ(out[i], (packed[i % 40] >> (i / 40 * 2) & 3) - 2) << i;
  table().unpack_codes(3, packed.data(), out.data(), 160);
  for (int i = 0; i < 160; ++i) {
    const int low = packed[i % 40] >> (i / 40 * 2) & 3;
    const int high = packed[40 + i % 20] >> (i / 20) & 1;
    EXPECT_EQ(out[i], low + 4 * high - 4) << i;
  }
}

TEST_P(KernelTest, WidenInt4TakesScalesAndMiddlesOfTheirOwn) {
  constexpr int64_t kN = 96;
  std::mt19937 rng(3);
  std::vector<uint8_t> codes(kN / 2);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(rng());
  const std::vector<float> numbers = Random(2 * kN, 4);
  std::vector<uint16_t> narrow(2 * kN);
  for (size_t i = 0; i < narrow.size(); ++i) narrow[i] = ref::ToBf16(numbers[i]);
  std::vector<float> got(kN);
  table().widen_int4(codes.data(), narrow.data(), narrow.data() + kN, got.data(), kN);
  for (int64_t i = 0; i < kN; ++i) {
    const int code = i < kN / 2 ? codes[i] % 16 - 8 : codes[i - kN / 2] / 16 - 8;
    const float scale = ToFloat(BFloat16{narrow[i]}), middle = ToFloat(BFloat16{narrow[kN + i]});
    EXPECT_NEAR(got[i], middle + scale * static_cast<float>(code), 1e-5f) << i;
  }
}

TEST_P(KernelTest, LaneMaximaAreThoseOfEverySixteenthNumber) {
  const std::vector<float> x = Random(3 * 256, 7);
  std::vector<float> want(3 * 16, -kInf), got(want.size());
  for (size_t i = 0; i < x.size(); ++i) {
    float& top = want[i / 256 * 16 + i % 16];
    top = std::max(top, x[i]);
  }
  table().lane_maxima(x.data(), 3, got.data());
  EXPECT_EQ(got, want);
}

TEST_P(KernelTest, KeyRangeIsThatOfTheNumbersInOrder) {
  for (int64_t n : kDims) {
    const std::vector<float> x = Random(n, 9);
    const auto [least, most] = std::minmax_element(x.begin(), x.end());
    const KeyRange keys = table().key_range(x.data(), n);
    EXPECT_EQ(FromOrderKey(keys.smallest), *least);
    EXPECT_EQ(FromOrderKey(keys.largest), *most);
    for (float odd : {-kNan, -kInf, kInf, kNan}) {
      std::vector<float> with = x;
      with[n / 2] = odd;
      const KeyRange range = table().key_range(with.data(), n);
      EXPECT_EQ(std::signbit(odd) ? range.smallest : range.largest, OrderKey(odd));
    }
  }
}

TEST_P(KernelTest, FindNotBelowFindsEqualOnesAndThoseThatAreNotNumbers) {
  for (int64_t n : kDims) {
    std::vector<float> x = Random(n, 8);
    x[n / 2] = 0.25f;
    x[n / 3] = kNan;
    std::vector<int32_t> want, got(n);
    for (int64_t i = 0; i < n; ++i) {
      if (!(x[i] < 0.25f)) want.push_back(static_cast<int32_t>(i));
    }
    got.resize(table().find_not_below(x.data(), n, 0.25f, got.data()));
    EXPECT_EQ(got, want) << n;
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

}  // namespace
}  // namespace lowkey
