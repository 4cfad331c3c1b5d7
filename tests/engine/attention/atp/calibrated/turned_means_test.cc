#include "engine/attention/atp/calibrated/turned_means.h"

#include <cmath>

#include "tests/engine/attention/attention_testing.h"
#include "tests/engine/kernels/kernels_testing.h"

namespace lowkey {
namespace {

// Frequencies of a model whose pairs turn fast, about once a page, slowly and hardly at all.
HeadCodes Codes() {
  HeadCodes codes;
  codes.inverse_frequencies = {1, 0.3, 1.1 / 64, 0.9 / 64, 1e-3, 1e-6};
  return codes;
}

TEST(TurnedMeans, TurnAsRopeDoes) {
  const HeadCodes codes = Codes();
  const TurnedMeans means(codes.inverse_frequencies);
  const std::vector<float> mean = Random(12, 1);
  std::vector<float> columns(12 * kPageTokens);
  for (const int64_t page : {0, 1, 1000}) {
    means.Turn(mean.data(), page, columns.data());
    for (int64_t t = 0; t < kPageTokens; ++t) {
      const std::vector<double> want = TurnedMean(codes, mean.data(), page * kPageTokens + t);
      for (int64_t j = 0; j < 6; ++j) {
        const double tolerance = j < 3 ? 1e-5 : 0.003 * std::hypot(mean[j], mean[j + 6]);
        EXPECT_NEAR(columns[j * kPageTokens + t], want[j], tolerance) << page << ", " << t;
        EXPECT_NEAR(columns[(j + 6) * kPageTokens + t], want[j + 6], tolerance) << page;
      }
    }
  }
}

// Expects the scores of pages [13, 19) to be the products with what Turn gives.
void ExpectScores(const std::vector<double>& frequencies) {
  const TurnedMeans means(frequencies);
  const auto half = static_cast<int64_t>(frequencies.size()), dim = 2 * half;
  const std::vector<float> mean = Random(dim, 2), queries = Random(3 * 20, 3);
  TurnedMeans::Pages pages;
  means.Grow(2, pages);
  means.Grow(19, pages);  // goes on where it was
  means.Grow(4, pages);
  constexpr int64_t kBegin = 13, kEnd = 19, kLd = 500;
  std::vector<float> scratch(means.ScratchSize(3)), scores(3 * kLd, 7.0f),
      columns(dim * kPageTokens);
  means.Score({queries.data(), 20, 3, mean.data(), kBegin, kEnd, scores.data(), kLd}, pages,
              scratch);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < kLd; ++i) {
      if (i >= (kEnd - kBegin) * kPageTokens) {
        EXPECT_EQ(scores[r * kLd + i], 7.0f);
        continue;
      }
      if (i % kPageTokens == 0) means.Turn(mean.data(), kBegin + i / kPageTokens, columns.data());
      double want = 0;
      for (int64_t j = 0; j < dim; ++j) {
        want += queries[r * 20 + j] * columns[j * kPageTokens + i % kPageTokens];
      }
      EXPECT_NEAR(scores[r * kLd + i], want, 1e-5) << r << ", " << i;
    }
  }
}

TEST(TurnedMeans, ScoreEveryRowAtEveryPosition) {
  ExpectScores(Codes().inverse_frequencies);
  ExpectScores({1, 0.3, 0.2});
  ExpectScores({1e-3, 1e-4});
}

// The scores of a page are the same bits whatever pages and rows are scored with it.
TEST(TurnedMeans, ScoresDoNotDependOnCompany) {
  const TurnedMeans means(Codes().inverse_frequencies);
  const std::vector<float> mean = Random(12, 4), queries = Random(7 * 12, 5);
  TurnedMeans::Pages pages;
  means.Grow(40, pages);
  std::vector<float> scratch(means.ScratchSize(7)), all(7 * 1024), one(kPageTokens);
  means.Score({queries.data(), 12, 7, mean.data(), 16, 32, all.data(), 1024}, pages, scratch);
  for (int64_t r = 0; r < 7; ++r) {
    for (int64_t page = 16; page < 32; ++page) {
      means.Score({queries.data() + r * 12, 12, 1, mean.data(), page, page + 1, one.data(), 64},
                  pages, scratch);
      for (int64_t t = 0; t < kPageTokens; ++t) {
        EXPECT_EQ(one[t], all[r * 1024 + (page - 16) * kPageTokens + t]);
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
