#include "engine/kernels/levels.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/kernels.h"
#include "tests/engine/kernels/kernels_testing.h"

namespace lowkey {
namespace {

class LevelsTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  const KernelTable& table() const { return *GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(Tables, LevelsTest, testing::ValuesIn(AvailableKernels()),
                         [](const auto& info) { return std::string(info.param->name); });

// A book, and nibbles and gains of 64 tokens, one by one and packed.
struct CodedTokens {
  static constexpr int64_t kTokens = 64;

  explicit CodedTokens(const LevelBands& of) : bands(of), nibbles(of.n_nibbles() * kTokens) {
    std::mt19937 rng(5);
    for (auto& table : book.levels) {
      for (int8_t& level : table) {
        level = static_cast<int8_t>(static_cast<int>(rng() % (2 * LevelBook::kMost + 1)) -
                                    LevelBook::kMost);
      }
      table[0] = LevelBook::kMost, table[1] = -LevelBook::kMost;
    }
    for (int i = 0; i < LevelBook::kGains; ++i) book.gains[i] = 1.0f + 0.7f * static_cast<float>(i);
    for (uint8_t& nibble : nibbles) nibble = static_cast<uint8_t>(rng() % LevelBook::kNibbles);
    for (int64_t t = 0; t < kTokens; ++t) {
      gains[t] = static_cast<uint8_t>(rng() % LevelBook::kGains);
      packed_gains[t / 4] = static_cast<uint8_t>(packed_gains[t / 4] | gains[t] << (2 * (t % 4)));
    }
  }
  double Level(int64_t component, int64_t token) const {
    int64_t nibble = 0;
    int band = 0;
    for (; component >= bands.n[band]; ++band) {
      component -= bands.n[band], nibble += bands.nibbles(band);
    }
    const int64_t n = bands.nibbles(band), place = component / n;
    nibble += component % n;
    return book.levels[LevelBook::TableOf(band) + place][nibbles[nibble * kTokens + token]];
  }
  double Gain(int64_t token) const { return book.gains[gains[token]]; }
  // Packs the nibbles: nibble j of token t into byte place(j, t), in the low bits for the first 32
  // tokens.
  template <typename Place>
  std::vector<uint8_t> Packed(const Place& place) const {
    std::vector<uint8_t> packed(nibbles.size() / 2);
    for (int64_t j = 0; j < bands.n_nibbles(); ++j) {
      for (int64_t t = 0; t < kTokens; ++t) {
        uint8_t& byte = packed[place(j, t)];
        byte = static_cast<uint8_t>(byte | nibbles[j * kTokens + t] << (t < 32 ? 0 : 4));
      }
    }
    return packed;
  }

  LevelBands bands;
  LevelBook book;
  std::vector<uint8_t> nibbles;  // [n_nibbles][64]
  uint8_t gains[kTokens] = {}, packed_gains[kTokens / 4] = {};
};

TEST_P(LevelsTest, ScoreLevelsAreSumsOfIntegers) {
  for (const LevelBands& bands :
       {LevelBands{{4, 0, 0}}, LevelBands{{24, 0, 0}}, LevelBands{{8, 16, 32}},
        LevelBands{{0, 8, 16}}, LevelBands{{12, 0, 48}}, LevelBands{{0, 0, 16}}}) {
    const CodedTokens tokens(bands);
    const int64_t n = bands.n_components();
    const std::vector<uint8_t> packed =
        tokens.Packed([](int64_t j, int64_t t) { return j / 4 * 128 + t % 32 * 4 + j % 4; });
    for (int64_t n_rows = 1; n_rows <= 7; ++n_rows) {
      std::mt19937 rng(6);
      std::vector<int8_t> rows(n_rows * n);
      for (int8_t& x : rows) x = static_cast<int8_t>(static_cast<int>(rng() % 255) - 127);
      std::fill_n(rows.begin(), n,
                  n_rows % 2 == 0 ? int8_t{127} : int8_t{-127});  // the largest sums
      std::vector<int32_t> sums(n_rows);
      for (int64_t i = 0; i < n_rows * n; ++i) sums[i / n] += rows[i];
      const std::vector<float> scales = Random(n_rows, 7), before = Random(n_rows * 100, 8);
      std::vector<float> got = before;
      table().score_levels({&tokens.book, packed.data(), tokens.packed_gains, bands, rows.data(),
                            sums.data(), scales.data(), n_rows, got.data(), 100});
      for (int64_t r = 0; r < n_rows; ++r) {
        for (int64_t t = 0; t < CodedTokens::kTokens; ++t) {
          double sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += rows[r * n + j] * tokens.Level(j, t);
          const double want = before[r * 100 + t] + scales[r] * tokens.Gain(t) * sum;
          EXPECT_NEAR(got[r * 100 + t], want, 1e-6 * std::abs(sum) + 1e-5) << n << ", " << r;
        }
      }
    }
  }
}

TEST_P(LevelsTest, ReadLevelsRoundsWeightsToEightBits) {
  for (const LevelBands& bands :
       {LevelBands{{8, 0, 0}}, LevelBands{{40, 0, 0}}, LevelBands{{8, 16, 32}},
        LevelBands{{0, 48, 0}}, LevelBands{{0, 0, 96}}, LevelBands{{16, 0, 32}}}) {
    const CodedTokens tokens(bands);
    const int64_t n = bands.n_components(), ld = bands.n_nibbles();
    const std::vector<uint8_t> packed =
        tokens.Packed([ld](int64_t j, int64_t t) { return (t % 32 / 4 * ld + j) * 4 + t % 4; });
    constexpr int64_t kRows = 4;  // the last two: nothing, and next to nothing
    std::vector<float> weights = Random(kRows * 70, 9), got(kRows * (n + 1), 0.5f);
    for (float& w : weights) w = std::abs(w);
    std::fill_n(weights.begin() + 2 * 70, 70, 0.0f);
    std::fill_n(weights.begin() + 3 * 70, 70, 1e-44f);
    table().read_levels({&tokens.book, packed.data(), tokens.packed_gains, bands, weights.data(),
                         70, kRows, got.data(), n + 1});
    for (int64_t r = 0; r < kRows; ++r) {
      double most = 0;
      for (int64_t t = 0; t < 64; ++t) most = std::max(most, weights[r * 70 + t] * tokens.Gain(t));
      for (int64_t j = 0; j < n; ++j) {
        double want = 0.5;
        for (int64_t t = 0; t < 64 && r < 2; ++t) {
          const double weight = weights[r * 70 + t] * tokens.Gain(t);
          want += std::nearbyint(weight / most * 255) * most / 255 * tokens.Level(j, t);
        }
        // A weight half way between two steps may go either way.
        EXPECT_NEAR(got[r * (n + 1) + j], want, most / 255 * LevelBook::kMost + 1e-5)
            << n << ", " << r;
      }
      EXPECT_EQ(got[r * (n + 1) + n], 0.5f) << "wrote behind a row";
    }
  }
}

}  // namespace
}  // namespace lowkey
