// The mechanism that plans for a device; what its kernels compute is in kernels/cuda's tests, what
// every mechanism promises in attention_test, run on a device.
#include "engine/attention/device/standard.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/attention/device/host_attention.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

// Unless the environment names a device.
const int kSetsDevice = setenv("LOWKEY_TEST_DEVICE", "emulated", 0);

AttentionGeometry Geometry(int64_t group, int64_t head_dim,
                           std::optional<int64_t> window = std::nullopt) {
  return {1, group, 1, head_dim, window, StorageType::kBFloat16};
}

// Itself, not what the registry puts around it for caches that it refuses.
std::unique_ptr<AttentionMechanism> MakeDeviceStandard(const AttentionContext& context) {
  return std::make_unique<DeviceStandardAttention>(context);
}

class DeviceStandardAttentionTest : public testing::Test {
 protected:
  static MechanismRunner RunnerOf(const AttentionGeometry& geometry) {
    MechanismRunner::Options options;
    options.make = MakeDeviceStandard;
    return {geometry, Mechanism::kStandard, options};
  }
};

// Queries and weights are rounded to bf16.
TEST_F(DeviceStandardAttentionTest, MatchesTheReferenceAndItselfInAnyChunk) {
  for (const std::optional<int64_t>& window :
       {std::optional<int64_t>(), std::optional<int64_t>(50)}) {
    const AttentionRows rows = RandomRows(Geometry(4, 64, window), 150, 1);
    const std::vector<float> at_once = RunSequence(rows, {Standard()});
    EXPECT_LE(MaxDifference(at_once.data(), ReferenceStandard(rows, 0)), 1e-2);
    RunOptions options{Standard(), 31};
    options.n_prompt_tokens = 120;
    EXPECT_TRUE(SameBits(RunSequence(rows, options), at_once));
    options.chunk_tokens = 1;
    options.n_prompt_tokens = 2;
    EXPECT_TRUE(SameBits(RunSequence(rows, options), at_once));
  }
}

// Few tiles are spread over spans of 512 tokens, many are not.
TEST_F(DeviceStandardAttentionTest, ALongPromptHasTheBitsOfItsTokens) {
  const AttentionRows rows = RandomRows(Geometry(2, 32), 1100, 2);
  const auto run = [&](int64_t n_company) {
    MechanismRunner runner(rows.geometry, Mechanism::kStandard);
    SequenceCache sequence = NewSequence(Standard(), 1090);
    std::vector<SequenceCache> company(n_company, NewSequence(Standard(), 1));
    std::vector<float> out, other;
    while (sequence.n_tokens < rows.n_tokens) {
      const int64_t n = sequence.n_tokens < 1090 ? 1090 : n_company > 0 ? 5 : 1;
      std::vector<MechanismRunner::Part> parts = {{&sequence, &rows, n, &out}};
      for (SequenceCache& c : company) parts.push_back({&c, &rows, 1, &other});
      EXPECT_TRUE(runner.Step(parts).ok());
    }
    return out;
  };
  EXPECT_TRUE(SameBits(run(0), run(3)));
}

TEST_F(DeviceStandardAttentionTest, StepsThatDecodeAlikeHaveOneKey) {
  const AttentionRows rows = RandomRows(Geometry(2, 32), 700, 3);
  MechanismRunner runner = RunnerOf(rows.geometry);
  SequenceCache a = NewSequence(Standard(), 509), b = NewSequence(Standard(), 4);
  std::vector<float> out, other;
  const auto key_of = [&](int64_t n_a, int64_t n_b) {
    std::vector<MechanismRunner::Part> parts = {{&a, &rows, n_a, &out}};
    if (n_b > 0) parts.push_back({&b, &rows, n_b, &other});
    EXPECT_TRUE(runner.Step(parts).ok());
    return runner.mechanism().PlanKey();
  };
  EXPECT_EQ(key_of(509, 4), std::nullopt);
  EXPECT_EQ(key_of(1, 2), std::nullopt);
  const std::optional<uint64_t> two = key_of(1, 1), one = key_of(1, 0);
  ASSERT_TRUE(two.has_value());
  ASSERT_TRUE(one.has_value());
  EXPECT_NE(one, two);
  EXPECT_EQ(a.n_tokens, 512);
  const std::optional<uint64_t> spread = key_of(1, 0);
  EXPECT_NE(spread, one);
  EXPECT_EQ(key_of(1, 0), spread);
}

// What was queued for one step does for all others with its key.
TEST_F(DeviceStandardAttentionTest, RepeatedLaunchesReadTheStepsOwnTables) {
  const AttentionRows rows = RandomRows(Geometry(2, 32), 520, 4);
  const std::vector<float> expected = RunSequence(rows, {Standard()});
  Device& device = *TestDevice();
  MechanismRunner runner = RunnerOf(rows.geometry);
  SequenceCache sequence = NewSequence(Standard(), 508);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 508, &out}}).ok());
  const int64_t row_bytes = rows.ld() * static_cast<int64_t>(sizeof(float));
  Buffer in = Buffer::Allocate(row_bytes, &device).value();
  Buffer to = Buffer::Allocate(64 * sizeof(float), &device).value();
  const auto* q = in.as<float>();
  while (sequence.n_tokens < rows.n_tokens) {
    const Segment segment{&sequence, sequence.n_tokens, 1, 0};
    ASSERT_TRUE(runner.mechanism().Plan({&segment, 1}).ok());
    device.Upload(rows.row(0, sequence.n_tokens), in.data(), row_bytes);
    device.Repeat(runner.mechanism().PlanKey().value(), [&] {
      runner.mechanism().Attend({0, nullptr, 0, q, q + 64, q + 96, rows.ld(), to.as<float>(), 64});
    });
    ASSERT_TRUE(
        device.Download(to.data(), out.data() + 64 * sequence.n_tokens, 64 * sizeof(float)).ok());
    runner.mechanism().Advance(sequence, 1);
  }
  EXPECT_TRUE(SameBits(out, expected));
}

TEST_F(DeviceStandardAttentionTest, RefusesAQuantisedCache) {
  MechanismRunner runner = RunnerOf(Geometry(1, 32));
  EXPECT_TRUE(runner.mechanism().CheckAvailable(Standard()).ok());
  for (CacheStorage storage : {CacheStorage::kInt8, CacheStorage::kInt4}) {
    EXPECT_EQ(runner.mechanism().CheckAvailable(Standard(storage)).code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

TEST_F(DeviceStandardAttentionTest, TheHostAttendsToHeadsThatAreTooWide) {
  const AttentionRows rows = RandomRows({1, 1, 1, 520, {}, StorageType::kFloat32}, 10, 5);
  MechanismRunner runner(rows.geometry, Mechanism::kStandard);
  EXPECT_NE(dynamic_cast<HostAttention*>(&runner.mechanism()), nullptr);
  const std::vector<float> out = RunSequence(rows, {Standard()});
  EXPECT_LE(MaxDifference(out.data(), ReferenceStandard(rows, 0)), 4e-6);
}

}  // namespace
}  // namespace lowkey
