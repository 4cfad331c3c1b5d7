// Mechanisms of a device in a cache that is nearly full and in pieces. Only what Plan and Advance
// take and free counts in most of these tests: nothing is computed.
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/device/atp.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

// Unless the environment names a device.
const int kSetsDevice = setenv("LOWKEY_TEST_DEVICE", "emulated", 0);

AttentionGeometry Geometry(int64_t head_dim = 32) {
  return {2, 4, 2, head_dim, std::nullopt, StorageType::kBFloat16};
}

AtpOptions Blocks128(int32_t rank) {
  AtpOptions o;
  o.rank = RankFixed{rank};
  o.block_tokens = 128;
  o.window_blocks = 0;
  o.prefill = AtpPrefill::kCompressed;
  return o;
}

struct Load {
  std::string name;
  std::vector<AttentionOptions> options;  // of the sequences, in turn
};

std::vector<Load> Loads() {
  AtpOptions refined = Blocks128(32);
  refined.refine_tokens = 16;
  const AttentionOptions int8 = Standard(CacheStorage::kInt8), int4 = Standard(CacheStorage::kInt4);
  const AttentionOptions taylor = TaylorShift(TaylorForm::kRecurrent);
  return {{"int8", {int8}},
          {"int8_int4_exact", {int8, int4, Standard()}},
          {"taylorshift", {taylor, TaylorShift(TaylorForm::kDirect)}},
          {"atp", {Atp(Blocks128(16)), Atp(refined), Atp(Blocks128(5))}}};
}

class DeviceLoadTest : public testing::TestWithParam<Load> {};

// Sequences grow by some rows at a time, and when the cache has no more one of them ends.
TEST_P(DeviceLoadTest, FillsTheBudgetBeforeItIsRefused) {
  constexpr int64_t kBudget = int64_t{8} << 20;
  MechanismRunner runner(Geometry(), GetParam().options[0].mechanism, {1, kBudget});
  std::minstd_rand rng(3);
  std::vector<std::unique_ptr<SequenceCache>> sequences;
  size_t n_begun = 0;
  int n_refused = 0;
  for (int i = 0; i < 4000; ++i) {
    if (sequences.size() < 4 || rng() % 16 == 0) {
      const auto& options = GetParam().options[n_begun++ % GetParam().options.size()];
      sequences.push_back(std::make_unique<SequenceCache>(NewSequence(options, 64)));
    }
    SequenceCache& sequence = *sequences[rng() % sequences.size()];
    const Segment segment{&sequence, sequence.n_tokens, 1 + static_cast<int64_t>(rng() % 90), 0};
    const absl::Status planned = runner.cache().FitIn([&] {
      return runner.mechanism().Plan({&segment, 1});
    });
    if (planned.ok()) {
      runner.mechanism().Advance(sequence, segment.n_rows);
      continue;
    }
    ++n_refused;
    ASSERT_EQ(planned.code(), absl::StatusCode::kResourceExhausted) << planned;
    ASSERT_GE(runner.cache().used_bytes(), kBudget * 95 / 100) << planned;
    std::swap(sequences[rng() % sequences.size()], sequences.back());
    sequences.pop_back();
  }
  EXPECT_GT(n_refused, 20) << "the load does not fill the cache";
}

// What else is in the cache comes and goes, so that the sequence's pages and slabs have to move.
TEST_P(DeviceLoadTest, WhatMovesKeepsItsBits) {
  const AttentionOptions& options = GetParam().options[0];
  const AttentionRows rows = RandomRows(Geometry(), 420, 8);
  RunOptions alone{options};
  alone.n_prompt_tokens = 64;
  alone.chunk_tokens = 60;
  const std::vector<float> expected = RunSequence(rows, alone);
  MechanismRunner runner(Geometry(), options.mechanism, {1, int64_t{4} << 20});
  Cache& cache = runner.cache();
  SequenceCache sequence = NewSequence(options, 64);
  std::vector<PageHandle> others;
  std::vector<float> out;
  std::minstd_rand rng(4);
  int n_moves = 0;
  const auto first_page = [&]() -> const std::byte* {
    return sequence.pages.empty() || !sequence.pages.back() ? nullptr
                                                            : sequence.pages.back().data();
  };
  while (sequence.n_tokens < rows.n_tokens) {
    // Fills the rest with pages and gives some back, wherever they lie.
    while (true) {
      auto page = cache.AllocatePage();
      if (!page.ok()) break;
      others.push_back(*std::move(page));
    }
    for (size_t n = others.size() / 2; n > 0; --n) {
      std::swap(others[rng() % others.size()], others.back());
      others.pop_back();
    }
    const std::byte* before = first_page();
    std::shared_ptr<Slab> large;  // which takes all that is free, in one piece
    ASSERT_TRUE(cache
                    .FitIn([&] {
                      auto slab = cache.AllocateSlab(cache.budget_bytes() - cache.used_bytes());
                      if (slab.ok()) large = *std::move(slab);
                      return slab.status();
                    })
                    .ok());
    if (before != first_page()) ++n_moves;
    large = nullptr;
    const int64_t at = sequence.n_tokens;
    const int64_t n =
        std::min<int64_t>(at < 64 ? std::min<int64_t>(60, 64 - at) : 60, rows.n_tokens - at);
    ASSERT_TRUE(runner.Step({{&sequence, &rows, n, &out}}).ok());
  }
  EXPECT_GT(n_moves, 0);
  EXPECT_TRUE(SameBits(out, expected));
  others.clear();
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, DeviceLoadTest, testing::ValuesIn(Loads()),
                         [](const auto& load) { return load.param.name; });

// The shared memory that a rank needs is known before a step asks the device for it.
TEST(DeviceMemory, ARankThatNeedsMoreSharedMemoryThanThereIsIsRefused) {
  const int64_t before = emulated::MostSharedBytes();
  emulated::LimitShared(int64_t{99} << 10);
  for (const int64_t head_dim : {32, 64, 128, 256}) {
    MechanismRunner runner(Geometry(head_dim), Mechanism::kAtp);
    int32_t most = 1;  // the largest rank that fits
    while (most < kAtpMostRank &&
           AtpSharedBytes(head_dim, most + 1) <= emulated::MostSharedBytes()) {
      ++most;
    }
    AtpOptions o = Blocks128(most);
    o.block_tokens = 512;
    EXPECT_TRUE(runner.mechanism().CheckAvailable(Atp(o)).ok()) << head_dim;
    if (most == kAtpMostRank || most >= 2 * head_dim * 2) continue;
    o.rank = RankFixed{most + 1};
    const absl::Status refused = runner.mechanism().CheckAvailable(Atp(o));
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << head_dim;
    EXPECT_NE(refused.message().find("bytes of shared memory, expected at most the 101376 of"),
              std::string::npos)
        << refused;
  }
  emulated::LimitShared(before);
}

// The emulated grid ends the process where a kernel asks for more than it may.
TEST(DeviceMemory, TheLargestRankThatIsNotRefusedFits) {
  const int64_t before = emulated::MostSharedBytes();
  const AttentionGeometry g{1, 1, 1, 256, std::nullopt, StorageType::kFloat32};
  AtpOptions o = Blocks128(60);
  o.block_tokens = 64;
  emulated::LimitShared(AtpSharedBytes(256, 60));
  const AttentionRows rows = RandomRows(g, 90, 3);
  MechanismRunner runner(g, Mechanism::kAtp);
  SequenceCache sequence = NewSequence(Atp(o), 64);
  std::vector<float> out;
  EXPECT_TRUE(runner.mechanism().CheckAvailable(Atp(o)).ok());
  EXPECT_TRUE(runner.Step({{&sequence, &rows, 64, &out}}).ok());
  EXPECT_TRUE(runner.Step({{&sequence, &rows, 26, &out}}).ok());
  emulated::LimitShared(before);
}

}  // namespace
}  // namespace lowkey
