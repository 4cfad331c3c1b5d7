// The contract of attention.h, for every mechanism: what a row's output may depend on, and what a
// sequence may hold.
#include "engine/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "engine/attention/pages/quantized_kv.h"
#include "engine/attention/standard/policy.h"
#include "tests/engine/attention/contract_cases.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = 400;  // six closed blocks of 64
constexpr int64_t kAll = int64_t{1} << 20;
// Sanitizers, ten times as slow, look for other errors than wrong numbers: fewer repetitions do.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class MechanismContract : public testing::TestWithParam<ContractCase> {
 protected:
  void SetUp() override {
    const AttentionOptions& options = GetParam().options;
    if (TestDevice() != nullptr && IsQuantized(options) && CodeBits(options.standard.storage) < 4) {
      GTEST_SKIP() << "devices have no int3 and int2";
    }
  }
  AttentionGeometry geometry() const {
    AttentionGeometry g{2, 4, 2, 20, GetParam().sliding_window, GetParam().type};
    g.score_dim = GetParam().score_dim;
    return g;
  }
  AttentionRows Rows(uint32_t seed, int64_t n_tokens = kTokens) const {
    return RandomRows(geometry(), n_tokens, seed);
  }
  int64_t n_prompt() const { return GetParam().n_prompt_tokens.value_or(kTokens); }
  RunOptions Options(int64_t chunk_tokens = kAll) const {
    return {GetParam().options,      chunk_tokens, n_prompt(),      1,
            GetParam().over,         {},           GetParam().make, {},
            GetParam().window_tokens};
  }
  SequenceCache Sequence() const { return NewSequence(GetParam().options, n_prompt()); }
  Mechanism mechanism() const { return GetParam().options.mechanism; }
  MechanismRunner Runner(int n_threads = 1) const {
    return {geometry(),
            mechanism(),
            {n_threads,
             int64_t{1} << 28,
             GetParam().over,
             {},
             GetParam().make,
             {},
             GetParam().window_tokens}};
  }
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismContract, testing::ValuesIn(AllCases()),
                         [](const auto& info) {
                           const bool wide = info.param.type == StorageType::kFloat32;
                           return info.param.name + (wide ? "_fp32" : "_bf16");
                         });

TEST_P(MechanismContract, ChunksOfAnySizeGiveTheSameBits) {
  const AttentionRows rows = Rows(1);
  const std::vector<float> at_once = RunSequence(rows, Options());
  for (int64_t chunk : {1, 7, 64, 100}) {
    if (kSanitized && chunk == 1) continue;  // CompanyChangesNoBits goes row by row too
    EXPECT_TRUE(SameBits(RunSequence(rows, Options(chunk)), at_once)) << "chunks of " << chunk;
  }
}

TEST_P(MechanismContract, UnevenChunksGiveTheSameBits) {
  const AttentionRows rows = Rows(2);
  const std::vector<float> at_once = RunSequence(rows, Options());
  std::mt19937 rng(1);
  for (int trial = 0; trial < (kSanitized ? 2 : 5); ++trial) {
    MechanismRunner runner = Runner();
    SequenceCache sequence = Sequence();
    std::vector<float> out;
    while (sequence.n_tokens < kTokens) {
      const int64_t n = std::min<int64_t>(1 + rng() % 130, kTokens - sequence.n_tokens);
      ASSERT_TRUE(runner.Step({{&sequence, &rows, n, &out}}).ok());
    }
    EXPECT_TRUE(SameBits(out, at_once));
  }
}

TEST_P(MechanismContract, ThreadsChangeNoBits) {
  const AttentionRows rows = Rows(3);
  const std::vector<float> one = RunSequence(rows, Options());
  for (int n_threads : {2, 3}) {
    RunOptions options = Options(90);
    options.n_threads = n_threads;
    EXPECT_TRUE(SameBits(RunSequence(rows, options), one)) << n_threads << " threads";
  }
}

TEST_P(MechanismContract, LaterTokensChangeNothingBefore) {
  const AttentionRows rows = Rows(4);
  const std::vector<float> before = RunSequence(rows, Options());
  const int64_t q_dim = geometry().n_heads * geometry().head_dim;
  for (int64_t token : {0, 3, 63, 64, 127, 130, 200, 320, 399}) {
    if (kSanitized && token % 100 != 0) continue;
    AttentionRows changed = rows;
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t j = 0; j < rows.ld(); ++j) changed.row(layer, token)[j] += 1.5f;
    }
    const std::vector<float> after = RunSequence(changed, Options());
    for (int64_t layer = 0; layer < 2; ++layer) {
      const float* a = before.data() + layer * kTokens * q_dim;
      const float* b = after.data() + layer * kTokens * q_dim;
      EXPECT_TRUE(SameBits({a, a + token * q_dim}, {b, b + token * q_dim})) << token;
      EXPECT_FALSE(SameBits({a + token * q_dim, a + (token + 1) * q_dim},
                            {b + token * q_dim, b + (token + 1) * q_dim}))
          << token;
    }
  }
}

TEST_P(MechanismContract, CompanyChangesNoBits) {
  const int64_t lengths[] = {400, 130, 257, 65};
  const int64_t chunks[] = {50, 1, 64, 13};
  MechanismRunner runner = Runner(2);
  std::vector<AttentionRows> rows;
  std::vector<SequenceCache> sequences;
  std::vector<std::vector<float>> outs(4);
  for (uint32_t i = 0; i < 4; ++i) {
    rows.push_back(Rows(10 + i, lengths[i]));
    sequences.push_back(Sequence());
  }
  for (bool running = true; running;) {
    std::vector<MechanismRunner::Part> parts;
    for (int i = 0; i < 4; ++i) {
      const int64_t left = lengths[i] - sequences[i].n_tokens;
      if (left == 0) continue;
      parts.push_back({&sequences[i], &rows[i], std::min(chunks[i], left), &outs[i]});
    }
    running = !parts.empty();
    if (running) {
      ASSERT_TRUE(runner.Step(parts).ok());
    }
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(SameBits(outs[i], RunSequence(rows[i], Options()))) << "sequence " << i;
  }
}

// Sequences that share their first tokens' pages and blocks, as choices of a request do.
TEST_P(MechanismContract, ForksDivergeWithoutTouchingEachOther) {
  for (int64_t shared : {1, 64, 150}) {
    if (kSanitized && shared == 64) continue;
    MechanismRunner runner = Runner();
    AttentionRows rows[3] = {Rows(1), Rows(2), Rows(3)};
    std::vector<float> outs[3];
    SequenceCache forks[3] = {Sequence(), {}, {}};
    ASSERT_TRUE(runner.Step({{&forks[0], &rows[0], shared, &outs[0]}}).ok());
    const int64_t q_dim = geometry().n_heads * geometry().head_dim;
    for (int f : {1, 2}) {
      forks[f] = forks[0];
      outs[f] = outs[0];
      for (int64_t layer = 0; layer < 2; ++layer) {
        std::copy_n(rows[0].row(layer, 0), shared * rows[0].ld(), rows[f].row(layer, 0));
      }
    }
    while (forks[0].n_tokens < kTokens) {
      const int64_t n = std::min<int64_t>(37, kTokens - forks[0].n_tokens);
      ASSERT_TRUE(runner
                      .Step({{&forks[0], &rows[0], n, &outs[0]},
                             {&forks[1], &rows[1], n, &outs[1]},
                             {&forks[2], &rows[2], n, &outs[2]}})
                      .ok());
    }
    for (int f = 0; f < 3; ++f) {
      EXPECT_TRUE(SameBits(outs[f], RunSequence(rows[f], Options()))) << f << " after " << shared;
      EXPECT_EQ(outs[f].size(), static_cast<size_t>(2 * kTokens * q_dim));
      forks[f] = {};
    }
    EXPECT_EQ(runner.cache().used_bytes(), 0);
  }
}

// A step that finds the cache full computes nothing; the same step later is as if it were the
// first. Every mechanism holds pages or slabs, so that some plans fail.
TEST_P(MechanismContract, FailedPlanLeavesSequencesValid) {
  const AttentionRows rows = Rows(5), other_rows = Rows(6);
  const std::vector<float> expected = RunSequence(rows, Options());
  const int64_t page_bytes = PageBytes(geometry());
  const int64_t step_bytes = kSanitized ? 3 * page_bytes : page_bytes;
  int n_failed = 0;
  for (int64_t left_bytes = 0; left_bytes < 12 * page_bytes; left_bytes += step_bytes) {
    MechanismRunner runner = Runner();
    SequenceCache sequence = Sequence(), other = Sequence();
    std::vector<float> out, other_out;
    const auto step = [&](int64_t n) {
      return runner.Step({{&sequence, &rows, n, &out}, {&other, &other_rows, n, &other_out}});
    };
    ASSERT_TRUE(step(100).ok());
    Cache& cache = runner.cache();
    auto hog = cache.AllocateSlab(cache.budget_bytes() - cache.used_bytes() - left_bytes);
    ASSERT_TRUE(hog.ok());
    const absl::Status status = step(200);
    hog->reset();
    if (!status.ok()) {
      ++n_failed;
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(sequence.n_tokens, 100);
      ASSERT_TRUE(step(90).ok());  // not the step that failed
    }
    ASSERT_TRUE(step(kTokens - sequence.n_tokens).ok());
    EXPECT_TRUE(SameBits(out, expected)) << left_bytes << " bytes left";
  }
  EXPECT_GT(n_failed, kSanitized ? 0 : 2);
}

TEST_P(MechanismContract, OutputsStayFiniteOver16kTokens) {
  AttentionGeometry g{1, 1, 1, 8, GetParam().sliding_window, GetParam().type};
  if (GetParam().score_dim.has_value()) g.score_dim = 4;
  MechanismRunner runner(g, mechanism());
  const int64_t n = runner.mechanism().max_tokens().value_or(kSanitized ? 2048 : 16384);
  AttentionOptions options = GetParam().options;
  options.atp.block_tokens = 512;
  const std::vector<float> out = RunSequence(
      RandomRows(g, n, 7),
      {options, 512, n / 2, 1, GetParam().over, {}, GetParam().make, {}, GetParam().window_tokens});
  ASSERT_EQ(out.size(), static_cast<size_t>(n * 8));
  EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](float x) { return std::fabs(x) < 10; }));
}

TEST_P(MechanismContract, KnowsItsName) {
  MechanismRunner runner = Runner();
  EXPECT_EQ(runner.mechanism().id(), mechanism());
  EXPECT_TRUE(runner.mechanism().CheckAvailable(GetParam().options).ok());
}

// ------------------------------------------------------------------ memory

struct Lengths {
  SequenceBound bound;
  std::function<int64_t(int64_t left)> chunk;
  int64_t window_tokens = 0;  // taylorshift's
};

// Runs a sequence; its bytes stay below the bound at every step, and all come back.
void ExpectWithinBound(const AttentionGeometry& g, const AttentionOptions& options,
                       const Lengths& lengths) {
  MechanismRunner::Options made;
  made.window_tokens = lengths.window_tokens;
  MechanismRunner runner(g, options.mechanism, made);
  const SequenceBound& bound = lengths.bound;
  const int64_t most = runner.mechanism().BoundBytes(options, bound);
  const AttentionRows rows = RandomRows(g, bound.n_tokens, 1);
  {
    SequenceCache sequence = NewSequence(options, bound.n_prompt_tokens);
    std::vector<float> out;
    while (sequence.n_tokens < bound.n_tokens) {
      const bool prompt = sequence.n_tokens < bound.n_prompt_tokens;
      const int64_t end = prompt ? bound.n_prompt_tokens : bound.n_tokens;
      const int64_t n = std::min(lengths.chunk(end - sequence.n_tokens), bound.max_step_rows);
      ASSERT_TRUE(runner.Step({{&sequence, &rows, n, &out}}).ok());
      ASSERT_LE(runner.cache().used_bytes(), most) << "at " << sequence.n_tokens;
      // Before Advance frees, a step holds the pages of its rows too.
      const Segment segment{&sequence, sequence.n_tokens, 1, 0};
      if (sequence.n_tokens < bound.n_tokens) {
        ASSERT_TRUE(runner.mechanism().Plan({&segment, 1}).ok());
        ASSERT_LE(runner.cache().used_bytes(), most) << "planned at " << sequence.n_tokens;
      }
    }
  }
  EXPECT_EQ(runner.cache().used_bytes(), 0);
}

// Heads of 8 switch after 64 tokens, larger ones later.
void DrawTaylorModel(const std::function<int64_t(int64_t, int64_t)>& draw, AttentionGeometry& g,
                     Lengths& lengths) {
  g.head_dim = 8 * draw(1, 4);
  if (draw(0, 1)) g.score_dim = 4 * draw(1, 4);
  lengths.window_tokens = 64 * draw(0, 3);
}

TEST(BoundBytes, HoldsAtEveryStepOverRandomOptions) {
  std::mt19937 rng(1);
  const auto draw = [&rng](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng);
  };
  for (int trial = 0; trial < 150; ++trial) {
    AttentionGeometry g{draw(1, 2),   2,
                        draw(1, 2),   8,
                        std::nullopt, draw(0, 1) ? StorageType::kFloat32 : StorageType::kBFloat16};
    AtpOptions o;
    o.rank = RankFixed{static_cast<int32_t>(draw(1, 16))};
    o.basis = static_cast<AtpBasis>(draw(0, 2));
    o.prefill = draw(0, 1) ? AtpPrefill::kExact : AtpPrefill::kCompressed;
    o.block_tokens = static_cast<int32_t>(64 * draw(1, 3));
    o.sinks = static_cast<int32_t>(draw(0, 8));
    o.window_blocks = static_cast<int32_t>(draw(0, 3));
    o.refine_tokens = static_cast<int32_t>(draw(0, 1) * draw(1, 50));
    if (draw(0, 3) == 0) o.rank = RankEnergy{0.01 * static_cast<double>(draw(1, 100))};
    if (draw(0, 3) == 0) o.decomposition = AtpDecomposition::kAlternating;
    o.basis_storage = static_cast<AtpStorage>(draw(0, 2));
    if (draw(0, 2) == 0) o.principal_storage = AtpStorage::kInt8;
    if (draw(0, 2) == 0) o.kept_storage = AtpStorage::kInt8;
    if (draw(0, 2) == 0) {
      o.readout = AtpReadout::kLinear;
      o.merge = draw(0, 3) > 0;
      o.refine_tokens = 0;
      o.basis_storage = AtpStorage::kCache;
    }
    if (draw(0, 1)) g.hidden_dim = draw(1, 16);
    AttentionOptions options = Atp(o);
    ASSERT_TRUE(ValidateAttentionOptions(options).ok());
    Lengths lengths;
    int64_t most_tokens = 1200;
    if (draw(0, 1) == 0) {
      constexpr Mechanism kOthers[] = {Mechanism::kStandard,    Mechanism::kOptimised,
                                       Mechanism::kEfficient,   Mechanism::kSuper,
                                       Mechanism::kTaylorShift, Mechanism::kLasso};
      options = Of(kOthers[draw(0, 5)]);
      g.hidden_dim.reset();
      options.standard.storage =
          static_cast<CacheStorage>(draw(0, TestDevice() == nullptr ? 4 : 2));
      options.efficient.key_storage = static_cast<KeyStorage>(draw(0, 1));
      const bool any_window =
          options.mechanism != Mechanism::kLasso && options.mechanism != Mechanism::kTaylorShift;
      if (draw(0, 1) && any_window) g.sliding_window = draw(1, 200);
      if (options.mechanism == Mechanism::kSuper) most_tokens = 512;
      if (options.mechanism == Mechanism::kTaylorShift) {
        options.taylorshift.form = static_cast<TaylorForm>(draw(0, 2));
        DrawTaylorModel(draw, g, lengths);
      }
    }
    lengths.bound.n_tokens = draw(1, most_tokens);
    lengths.bound.n_prompt_tokens = draw(1, lengths.bound.n_tokens);
    lengths.bound.max_step_rows = draw(1, 500);
    const bool whole_steps = draw(0, 1) == 1;
    lengths.chunk = [&](int64_t left) { return whole_steps ? left : draw(1, left); };
    SCOPED_TRACE(testing::Message()
                 << "trial " << trial << ", " << lengths.bound.n_tokens << " tokens, prompt "
                 << lengths.bound.n_prompt_tokens << ", block " << o.block_tokens);
    ExpectWithinBound(g, options, lengths);
    if (testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace lowkey
