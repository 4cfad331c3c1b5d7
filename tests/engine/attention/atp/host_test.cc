#include "engine/attention/atp/host.h"

#include <algorithm>
#include <cmath>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

struct AtpCase {
  StorageType type;
  double truncated_tolerance;  // against the reference at a rank below full
  double full_tolerance;       // against standard at full rank
};

AtpOptions Options(AtpBasis basis, int32_t rank, int32_t block_tokens, int32_t sinks,
                   int32_t window_blocks) {
  return {RankFixed{rank}, basis, AtpPrefill::kCompressed, block_tokens, sinks, window_blocks};
}

RunOptions RunAtp(const AtpOptions& options, std::optional<int64_t> n_prompt_tokens = {}) {
  return {Atp(options), int64_t{1} << 20, n_prompt_tokens};
}

// The mean magnitude of the difference.
double MeanDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::fabs(static_cast<double>(a[i]) - b[i]);
  return sum / static_cast<double>(a.size());
}

class AtpTest : public testing::TestWithParam<AtpCase> {
 protected:
  AttentionGeometry geometry(int64_t n_layers = 2) const {
    return {n_layers, 4, 2, 16, std::nullopt, GetParam().type};
  }

  void ExpectMatchesReference(const AttentionRows& rows, const AtpOptions& o, int64_t n_prompt) {
    const std::vector<float> out = RunSequence(rows, RunAtp(o, n_prompt));
    const int64_t rank = std::get<RankFixed>(o.rank).rank;
    const auto layer_size = static_cast<int64_t>(out.size()) / rows.geometry.n_layers;
    for (int64_t layer = 0; layer < rows.geometry.n_layers; ++layer) {
      const double difference = MaxDifference(out.data() + layer * layer_size,
                                              ReferenceAtp(rows, layer, o, rank, n_prompt));
      EXPECT_LE(difference, GetParam().truncated_tolerance)
          << NameOf(o.basis) << ", rank " << rank << ", block " << o.block_tokens << ", sinks "
          << o.sinks << ", window " << o.window_blocks << ", prompt " << n_prompt;
      worst_ = std::max(worst_, difference);
    }
  }
  void TearDown() override { RecordProperty("max_difference", std::to_string(worst_)); }

  double worst_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Caches, AtpTest,
                         testing::Values(AtpCase{StorageType::kFloat32, 2e-5, 2e-5},
                                         AtpCase{StorageType::kBFloat16, 6e-2, 4e-2}),
                         [](const auto& info) {
                           return info.param.type == StorageType::kFloat32 ? "fp32" : "bf16";
                         });

TEST_P(AtpTest, MatchesTheReferenceWhereTheSpectrumHasAGap) {
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
    for (int32_t sinks : {0, 4}) {
      for (int32_t window : {0, 1, 2}) {
        const AttentionRows rows = FactorRows(geometry(), 300, GapAt(6), 1);
        ExpectMatchesReference(rows, Options(basis, 6, 64, sinks, window), 300);
      }
    }
    ExpectMatchesReference(FactorRows(geometry(1), 400, GapAt(10), 2),
                           Options(basis, 10, 128, 63, 0), 400);
  }
}

TEST_P(AtpTest, MatchesTheReferenceAtOddHeads) {
  for (int64_t head_dim : {8, 20, 40}) {
    for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
      const AttentionGeometry g{1, 9, 3, head_dim, std::nullopt, GetParam().type};
      ExpectMatchesReference(FactorRows(g, 200, GapAt(5), 3), Options(basis, 5, 64, 3, 0), 200);
    }
  }
}

TEST_P(AtpTest, MatchesTheReferenceBeyondAnExactPrompt) {
  AtpOptions o = Options(AtpBasis::kLayer, 6, 64, 4, 1);
  o.prefill = AtpPrefill::kExact;
  for (int64_t n_prompt : {1, 64, 150, 200, 299}) {
    ExpectMatchesReference(FactorRows(geometry(1), 300, GapAt(6), 4), o, n_prompt);
  }
}

TEST_P(AtpTest, MatchesTheReferenceWithRefinedTokens) {
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
    for (int32_t refine : {1, 20, 300}) {
      AtpOptions o = Options(basis, 6, 64, 4, 0);
      o.refine_tokens = refine;
      const bool rounds = GetParam().type == StorageType::kBFloat16;  // and chooses other tokens
      if (rounds && basis == AtpBasis::kInput) continue;
      ExpectMatchesReference(FactorRows(geometry(1), 300, GapAt(6), 14), o, 300);
      if (rounds) continue;
      o.rank = RankFixed{3};
      o.prefill = AtpPrefill::kExact;
      ExpectMatchesReference(FactorRows(geometry(1), 300, {1, 0.9f, 0.8f, 0.2f, 0.1f}, 15), o, 200);
    }
  }
}

TEST_P(AtpTest, RefiningAllFarTokensIsStandard) {
  for (int64_t block : {64, 128}) {
    const AttentionRows rows = RandomRows(geometry(1), 3 * block + 30, 16);
    const std::vector<double> standard = ReferenceStandard(rows, 0);
    for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
      for (int32_t sinks : {0, 4}) {
        AtpOptions o = Options(basis, 2, static_cast<int32_t>(block), sinks, 0);
        o.refine_tokens = static_cast<int32_t>(rows.n_tokens);
        EXPECT_LE(MaxDifference(RunSequence(rows, RunAtp(o)).data(), standard),
                  GetParam().full_tolerance);
      }
    }
  }
}

// A key of 20 numbers in 8 bits errs by half a step of each: of scores around 1, by 1%.
TEST_P(AtpTest, RefiningFromInt8IsNearlyRefiningFromTheCache) {
  const AttentionRows rows = RandomRows(geometry(1), 400, 16);
  const std::vector<float> standard = RunSequence(rows, {Standard()});
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
    AtpOptions o = Options(basis, 2, 64, 4, 0);
    o.refine_tokens = 400;
    o.kept_storage = AtpStorage::kInt8;
    EXPECT_LT(MeanDifference(RunSequence(rows, RunAtp(o)), standard), 0.003);
  }
}

TEST_P(AtpTest, ErrorShrinksAsMoreTokensAreRefined) {
  const AttentionRows rows = RandomRows(geometry(1), 400, 17);
  const std::vector<float> standard = RunSequence(rows, {Standard()});
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
    double last = HUGE_VAL;
    for (int32_t refine : {0, 8, 32, 128}) {
      AtpOptions o = Options(basis, 4, 64, 4, 0);
      o.refine_tokens = refine;
      const double error = MeanDifference(RunSequence(rows, RunAtp(o)), standard);
      EXPECT_LT(error, last) << NameOf(basis) << ", refine " << refine;
      last = error;
    }
  }
}

TEST_P(AtpTest, FullRankIsStandard) {
  for (int64_t block : {64, 128, 512}) {
    const int64_t n = 2 * block + 100;
    const AttentionRows rows = RandomRows(geometry(1), n, 5);
    const std::vector<double> standard = ReferenceStandard(rows, 0);
    for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
      for (int32_t sinks : {0, 4}) {
        for (int32_t window : {0, 1, 2}) {
          AtpOptions o = Options(basis, 1, static_cast<int32_t>(block), sinks, window);
          o.rank = RankFraction{1.0};
          const std::vector<float> out = RunSequence(rows, RunAtp(o));
          EXPECT_LE(MaxDifference(out.data(), standard), GetParam().full_tolerance)
              << NameOf(basis) << ", block " << block << ", sinks " << sinks << ", window "
              << window;
        }
      }
    }
  }
}

TEST_P(AtpTest, ErrorShrinksAsRankGrows) {
  std::vector<float> weights;
  for (int i = 0; i < 32; ++i) weights.push_back(std::pow(0.8f, static_cast<float>(i)));
  const AttentionRows rows = FactorRows(geometry(1), 400, weights, 6);
  const std::vector<float> standard = RunSequence(rows, {Standard()});
  for (AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
    double last = HUGE_VAL;
    for (int32_t rank : {1, 2, 4, 8, 12, 16}) {
      const std::vector<float> out = RunSequence(rows, RunAtp(Options(basis, rank, 64, 0, 0)));
      const double error = MeanDifference(out, standard);
      EXPECT_LT(error, last) << NameOf(basis) << ", rank " << rank;
      EXPECT_GT(error, 0) << NameOf(basis) << ", rank " << rank;
      last = error;
    }
  }
}

TEST_P(AtpTest, PromptRowsOfAnExactPrefillHaveStandardsBits) {
  AtpOptions o = Options(AtpBasis::kLayer, 4, 64, 4, 0);
  o.prefill = AtpPrefill::kExact;
  const AttentionRows rows = RandomRows(geometry(1), 300, 7);
  const std::vector<float> standard = RunSequence(rows, {Standard()});
  const int64_t q_dim = 64;
  for (int64_t n_prompt : {1, 64, 130, 200, 300}) {
    const std::vector<float> out = RunSequence(rows, RunAtp(o, n_prompt));
    EXPECT_TRUE(SameBits({out.begin(), out.begin() + n_prompt * q_dim},
                         {standard.begin(), standard.begin() + n_prompt * q_dim}))
        << n_prompt;
    if (n_prompt < 64 || n_prompt == 300) continue;
    EXPECT_FALSE(
        SameBits({out.begin() + n_prompt * q_dim, out.begin() + (n_prompt + 1) * q_dim},
                 {standard.begin() + n_prompt * q_dim, standard.begin() + (n_prompt + 1) * q_dim}))
        << "the row after " << n_prompt << " read nothing compressed";
  }
}

TEST_P(AtpTest, NearTokensAreExactUntilABlockIsFar) {
  const AttentionRows rows = RandomRows(geometry(1), 300, 8);
  const std::vector<float> standard = RunSequence(rows, {Standard()});
  const std::vector<float> out = RunSequence(rows, RunAtp(Options(AtpBasis::kKv, 2, 64, 4, 1)));
  const int64_t first_far_row = 128 * 64;  // row 128 is the first with a far block
  EXPECT_TRUE(SameBits({out.begin(), out.begin() + first_far_row},
                       {standard.begin(), standard.begin() + first_far_row}));
}

TEST_P(AtpTest, ConstantKeysAndValuesCompressToTheirMeans) {
  AttentionRows rows = RandomRows(geometry(1), 200, 9);
  for (int64_t i = 0; i < 200; ++i) std::fill_n(rows.row(0, i) + 64, 64, 0.75f);
  const std::vector<float> out = RunSequence(rows, RunAtp(Options(AtpBasis::kLayer, 3, 64, 2, 0)));
  for (float x : out) ASSERT_NEAR(x, 0.75f, 1e-5);
}

TEST_P(AtpTest, AdvanceFreesThePagesThatNoLaterRowReads) {
  AtpOptions o = Options(AtpBasis::kLayer, 4, 128, 4, 1);
  const AttentionRows rows = RandomRows(geometry(1), 600, 10);
  MechanismRunner runner(rows.geometry, Mechanism::kAtp);
  SequenceCache sequence = NewSequence(Atp(o), 600);
  std::vector<float> out;
  while (sequence.n_tokens < 600) {
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 20, &out}}).ok());
    const int64_t near = std::max<int64_t>(0, sequence.n_tokens / 128 - 1);
    for (size_t page = 0; page < sequence.pages.size(); ++page) {
      const bool held = page == 0 || static_cast<int64_t>(page) >= 2 * near;  // page 0: the sinks
      EXPECT_EQ(static_cast<bool>(sequence.pages[page]), held)
          << "page " << page << " at " << sequence.n_tokens;
    }
    EXPECT_EQ(static_cast<int64_t>(sequence.state.As<AtpState>().blocks.size()),
              sequence.n_tokens / 128);
  }
}

TEST_P(AtpTest, InputsAreHeldForTheOpenBlockOnly) {
  const AtpOptions o = Options(AtpBasis::kInput, 4, 128, 4, 1);
  const AttentionRows rows = RandomRows(geometry(), 600, 10);
  MechanismRunner runner(rows.geometry, Mechanism::kAtp);
  SequenceCache sequence = NewSequence(Atp(o), 600);
  std::vector<float> out;
  while (sequence.n_tokens < 600) {
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 20, &out}}).ok());
    const auto& input_pages = sequence.state.As<AtpState>().input_pages;
    for (size_t page = 0; page < input_pages.size(); ++page) {
      EXPECT_EQ(input_pages[page] != nullptr,
                static_cast<int64_t>(page) >= sequence.n_tokens / 128 * 2)
          << "page " << page << " at " << sequence.n_tokens;
    }
  }
}

TEST_P(AtpTest, ExactPrefillKeepsThePromptsPagesUntilItsEnd) {
  AtpOptions o = Options(AtpBasis::kLayer, 4, 64, 0, 0);
  o.prefill = AtpPrefill::kExact;
  const AttentionRows rows = RandomRows(geometry(1), 330, 11);
  MechanismRunner runner(rows.geometry, Mechanism::kAtp);
  SequenceCache sequence = NewSequence(Atp(o), 300);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 299, &out}}).ok());
  for (const PageHandle& page : sequence.pages) EXPECT_TRUE(static_cast<bool>(page));
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}}).ok());
  for (size_t page = 0; page < 5; ++page) {
    EXPECT_EQ(static_cast<bool>(sequence.pages[page]), page == 4) << page;
  }
}

TEST_P(AtpTest, FindsFewSingularValuesInAStep) {
  AttentionGeometry g = geometry();
  g.n_kv_heads = g.n_heads = 64;
  MechanismRunner runner(g, Mechanism::kAtp);
  AtpOptions o = Options(AtpBasis::kLayer, 1, 512, 0, 0);
  o.rank = RankEntropy{};
  EXPECT_TRUE(runner.mechanism().CheckAvailable(Atp(o)).ok());
  o.block_tokens = 1024;
  const absl::Status status = runner.mechanism().CheckAvailable(Atp(o));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("entropy of 1024 singular values"), std::string::npos);
  o.basis = AtpBasis::kKv;
  EXPECT_TRUE(runner.mechanism().CheckAvailable(Atp(o)).ok());
}

TEST_P(AtpTest, IsNotAvailableUnderASlidingWindow) {
  AttentionGeometry g = geometry();
  g.sliding_window = 32;
  MechanismRunner runner(g, Mechanism::kAtp);
  const absl::Status status = runner.mechanism().CheckAvailable(Atp({}));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "attention.mechanism: atp is not available for a model with a sliding window of 32 "
            "tokens");
}

}  // namespace
}  // namespace lowkey
