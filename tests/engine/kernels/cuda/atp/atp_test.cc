#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/lowrank/basis.h"
#include "tests/engine/kernels/cuda/atp/atp_sequence.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

template <typename T>
class CudaAtpTest : public testing::Test {
 protected:
  ~CudaAtpTest() override { emulated::SetThreadOrder(emulated::ThreadOrder::kForward); }
  static constexpr bool kWide = sizeof(T) == sizeof(float);

  // Expects the same result of `make` with threads in any order.
  template <typename Make>
  static void ExpectTheSameInAnyOrder(Make make) {
    const auto forward = make();
    for (auto order : {emulated::ThreadOrder::kBackward, emulated::ThreadOrder::kShuffled}) {
      emulated::SetThreadOrder(order);
      EXPECT_EQ(make(), forward);
    }
  }
};
using Types = testing::Types<float, uint16_t>;
TYPED_TEST_SUITE(CudaAtpTest, Types);

TYPED_TEST(CudaAtpTest, ABasisIsOrthonormalAndProjectsKeysAndValues) {
  for (int64_t n_bases : {int64_t{1}, kHeads}) {
    const Sequence<TypeParam> sequence(n_bases, 9, 0);
    const double tolerance = this->kWide ? 1e-5 : 2e-2;
    for (int64_t block = 0; block < kBlocks; ++block) {
      for (int64_t head = 0; head < kHeads; ++head) {
        const auto stored = sequence.Read(block, head);
        for (int64_t i = 0; i < 9; ++i) {
          for (int64_t j = 0; j < 9; ++j) {
            EXPECT_NEAR(Dot(&stored.u[i * kBlock], &stored.u[j * kBlock], kBlock), i == j,
                        tolerance);
          }
          for (int64_t t = 0; block == 0 && t < kSinks; ++t) EXPECT_EQ(stored.u[i * kBlock + t], 0);
        }
        const int64_t first = block == 0 ? kSinks : 0;
        for (int64_t c = 0; c < kDim; ++c) {
          double key = 0, value = 0, key_mean = 0, value_mean = 0;
          for (int64_t t = first; t < kBlock; ++t) {
            const int64_t at = block * kBlock + t;
            key_mean += sequence.key(head, at)[c] / static_cast<double>(kBlock - first);
            value_mean += sequence.value(head, at)[c] / static_cast<double>(kBlock - first);
          }
          for (int64_t t = first; t < kBlock; ++t) {
            const int64_t at = block * kBlock + t;
            key += stored.u[2 * kBlock + t] * (sequence.key(head, at)[c] - key_mean);
            value += stored.u[2 * kBlock + t] * (sequence.value(head, at)[c] - value_mean);
          }
          EXPECT_NEAR(stored.keys[2 * kDim + c], key, 4 * tolerance);
          EXPECT_NEAR(stored.values[2 * kDim + c], value, 4 * tolerance);
          EXPECT_NEAR(stored.keys[9 * kDim + c], key_mean, tolerance);
          EXPECT_NEAR(stored.values[9 * kDim + c], value_mean, tolerance);
        }
      }
    }
  }
}

// Noise has the flattest and hardest of spectra.
TYPED_TEST(CudaAtpTest, ABasisKeepsNearlyTheEnergyOfTheLeadingSingularVectors) {
  for (int64_t rank : {1, 4, 9, 30}) {
    const Sequence<TypeParam> sequence(kHeads, rank, 0);
    const auto stored = sequence.Read(1, 0);
    std::vector<float> m(kBlock * 2 * kDim);
    double energies[2] = {};
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t c = 0; c < 2 * kDim; ++c) {
        const auto at = [&](int64_t t) {
          const int64_t token = kBlock + t;
          return c < kDim ? sequence.key(0, token)[c] : sequence.value(0, token)[c - kDim];
        };
        double mean = 0;
        for (int64_t t = 0; t < kBlock; ++t) mean += at(t) / kBlock;
        for (int64_t t = 0; t < kBlock; ++t) {
          const double x = at(t) - mean;
          if (pass == 0) energies[c / kDim] += x * x;
          m[t * 2 * kDim + c] = static_cast<float>(x / std::sqrt(energies[c / kDim]));
        }
      }
    }
    const std::vector<double> sigma = SingularValues({m.data(), kBlock, 2 * kDim, 2 * kDim});
    double best = 0, kept = 0;
    for (int64_t r = 0; r < rank; ++r) {
      best += sigma[r] * sigma[r];
      for (int64_t c = 0; c < 2 * kDim; ++c) {
        double sum = 0;
        for (int64_t t = 0; t < kBlock; ++t) sum += stored.u[r * kBlock + t] * m[t * 2 * kDim + c];
        kept += sum * sum;
      }
    }
    EXPECT_GT(kept, 0.99 * best) << "rank " << rank << ": " << kept / best;
  }
}

TYPED_TEST(CudaAtpTest, BlocksHaveTheSameBitsInAnyOrderOfThreads) {
  this->ExpectTheSameInAnyOrder([] { return Sequence<TypeParam>(1, 9, 4).Bits(); });
}

TYPED_TEST(CudaAtpTest, RowsReadBlocksAndExactTokens) {
  for (int64_t rank : {9, 40}) {
    Sequence<TypeParam> sequence(rank == 9 ? kHeads : 1, rank, 0);
    for (const auto& [position, n] : {std::pair{130, 6}, {259, 1}, {383, 1}, {440, 8}}) {
      const std::vector<float> q = Random(n * kWidth * kGroup, 5);
      const auto out = sequence.Attend(position, n, q, Sequence<TypeParam>::Way::kWhole);
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t h = 0; h < kHeads * kGroup; ++h) {
          const int64_t at = (i * kHeads * kGroup + h) * kDim;
          const Matrix want = Reference(sequence, position + i, h / kGroup, q.data() + at, {}).out;
          for (int64_t j = 0; j < kDim; ++j) ASSERT_NEAR(out[at + j], want[j], 5e-6);
        }
      }
    }
  }
}

TYPED_TEST(CudaAtpTest, ARowHasTheSameBitsInAnyTileAndPartByPart) {
  using Way = typename Sequence<TypeParam>::Way;
  Sequence<TypeParam> sequence(1, 9, 0);
  const int64_t width = kWidth * kGroup;
  const std::vector<float> q = Random(8 * width, 6);
  const std::vector<float> whole = sequence.Attend(440, 8, q, Way::kWhole);
  EXPECT_EQ(sequence.Attend(440, 8, q, Way::kSpread), whole);
  for (int64_t i = 0; i < 8; ++i) {
    const std::vector<float> row(q.begin() + i * width, q.begin() + (i + 1) * width);
    const std::vector<float> want(whole.begin() + i * width, whole.begin() + (i + 1) * width);
    EXPECT_EQ(sequence.Attend(440 + i, 1, row, Way::kWhole), want) << i;
    EXPECT_EQ(sequence.Attend(440 + i, 1, row, Way::kSpread), want) << i;
  }
}

TYPED_TEST(CudaAtpTest, RowsHaveTheSameBitsInAnyOrderOfThreads) {
  using Way = typename Sequence<TypeParam>::Way;
  const std::vector<float> q = Random(8 * kWidth * kGroup, 7);
  Sequence<TypeParam> plain(1, 9, 0), refining(kHeads, 9, 20);
  this->ExpectTheSameInAnyOrder([&] { return plain.Attend(440, 8, q, Way::kWhole); });
  emulated::SetThreadOrder(emulated::ThreadOrder::kForward);
  this->ExpectTheSameInAnyOrder([&] { return refining.Attend(440, 1, q, Way::kSpread); });
}

TYPED_TEST(CudaAtpTest, TheHeaviestFarTokensAreReadExactly) {
  for (int64_t n_refined : {1, 20, 70, 1000}) {
    Sequence<TypeParam> sequence(kHeads, 9, n_refined);
    const int64_t position = 300, n_far = 256;
    const std::vector<float> q = Random(kWidth * kGroup, 8);
    const auto out = sequence.Attend(position, 1, q, Sequence<TypeParam>::Way::kSpread);
    const std::vector<int32_t> all = sequence.chosen();
    const int64_t n = std::min(n_refined, n_far - kSinks);
    for (int64_t head = 0; head < kHeads; ++head) {
      const auto first = all.begin() + head * n_refined;
      const std::vector<int32_t> chosen(first, first + n);
      EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
      EXPECT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end());
      EXPECT_GE(chosen.front(), kSinks);
      EXPECT_LT(chosen.back(), n_far);
      Matrix weights(n_far, 0.0);
      for (int64_t h = head * kGroup; h < (head + 1) * kGroup; ++h) {
        const Matrix part =
            Reference(sequence, position, head, q.data() + h * kDim, {}).far_weights;
        for (int64_t t = 0; t < n_far; ++t) weights[t] += part[t];
      }
      double least = 1, most = 0;
      for (int64_t t = kSinks; t < n_far; ++t) {
        const bool is_chosen = std::binary_search(chosen.begin(), chosen.end(), t);
        (is_chosen ? least : most) =
            is_chosen ? std::min(least, weights[t]) : std::max(most, weights[t]);
      }
      EXPECT_GE(least, most * (1 - 1e-5));
      for (int64_t h = head * kGroup; h < (head + 1) * kGroup; ++h) {
        const Matrix want = Reference(sequence, position, head, q.data() + h * kDim, chosen).out;
        for (int64_t j = 0; j < kDim; ++j) ASSERT_NEAR(out[h * kDim + j], want[j], 5e-6);
      }
    }
  }
}

// Of equal weights the first is chosen: with queries of zero all far tokens weigh the same.
TYPED_TEST(CudaAtpTest, OfEqualWeightsTheFirstAreChosen) {
  Sequence<TypeParam> sequence(1, 9, 20);
  const std::vector<float> q(kWidth * kGroup, 0.0f);
  sequence.Attend(300, 1, q, Sequence<TypeParam>::Way::kSpread);
  std::vector<int32_t> want;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int32_t i = 0; i < 20; ++i) want.push_back(kSinks + i);
  }
  EXPECT_EQ(sequence.chosen(), want);
}

}  // namespace
}  // namespace lowkey
