// The mechanism that plans for a device; what its kernels compute is in kernels/cuda's tests, what
// atp promises in attention_test and attention_atp_test, run on a device.
#include "engine/attention/atp/device.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "engine/kernels/cuda/emulated/grid.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

// Unless the environment names a device.
const int kSetsDevice = setenv("LOWKEY_TEST_DEVICE", "emulated", 0);

AtpOptions Blocks64(AtpPrefill prefill = AtpPrefill::kCompressed) {
  return {RankFixed{8}, AtpBasis::kKv, prefill, 64, 4, 0};
}

AttentionGeometry Geometry(StorageType type = StorageType::kBFloat16) {
  return {1, 4, 2, 32, std::nullopt, type};
}

std::unique_ptr<AttentionMechanism> MakeDeviceAtp(const AttentionContext& context) {
  return std::make_unique<DeviceAtp>(context);
}

class DeviceAtpTest : public testing::Test {
 protected:
  static MechanismRunner Runner(const AttentionGeometry& geometry) {
    return {
        geometry, Mechanism::kAtp, {1, int64_t{1} << 28, Mechanism::kEfficient, {}, MakeDeviceAtp}};
  }
};

TEST_F(DeviceAtpTest, ServesWhatItsKernelsCompute) {
  const auto serves = [](auto change) {
    AtpOptions o = Blocks64();
    change(o);
    return DeviceAtp::Serves(Atp(o));
  };
  EXPECT_TRUE(DeviceAtp::Serves(Atp({})));
  EXPECT_TRUE(serves([](AtpOptions& o) { o.refine_tokens = 64; }));
  EXPECT_TRUE(serves([](AtpOptions& o) { o.basis = AtpBasis::kLayer; }));
  EXPECT_TRUE(serves([](AtpOptions& o) { o.rank = RankFixed{512}; }));
  EXPECT_TRUE(serves([](AtpOptions& o) {
    o.readout = AtpReadout::kLinear;
    o.merge = true;
  }));
  EXPECT_FALSE(serves([](AtpOptions& o) { o.rank = RankFixed{513}; }));
  EXPECT_FALSE(serves([](AtpOptions& o) {
    o.rank = RankFraction{0.5};
    o.block_tokens = 2048;
  }));
  EXPECT_FALSE(serves([](AtpOptions& o) { o.rank = RankEnergy{0.9}; }));
  EXPECT_FALSE(serves([](AtpOptions& o) { o.rank = RankEntropy{}; }));
  EXPECT_FALSE(serves([](AtpOptions& o) { o.basis = AtpBasis::kInput; }));
  EXPECT_FALSE(serves([](AtpOptions& o) { o.decomposition = AtpDecomposition::kAlternating; }));
  EXPECT_TRUE(serves([](AtpOptions& o) {
    o.basis_storage = AtpStorage::kInt4;
    o.principal_storage = o.kept_storage = AtpStorage::kInt8;
  }));
  const auto fits = [](int64_t group, int64_t head_dim) {
    return DeviceAtp::Fits({1, group, 1, head_dim, std::nullopt, StorageType::kFloat32});
  };
  EXPECT_TRUE(fits(16, 256));
  EXPECT_FALSE(fits(17, 256));
  EXPECT_FALSE(fits(1, 258));
  EXPECT_FALSE(fits(1, 33));
}

TEST_F(DeviceAtpTest, StepsThatDecodeAlikeHaveOneKey) {
  const AttentionRows rows = RandomRows(Geometry(), 200, 1);
  MechanismRunner runner = Runner(Geometry());
  SequenceCache sequence = NewSequence(Atp(Blocks64()), 140);
  std::vector<float> out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 140, &out}}).ok());
  EXPECT_EQ(runner.mechanism().PlanKey(), std::nullopt) << "a prompt";
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}}).ok());
  const auto key = runner.mechanism().PlanKey();
  ASSERT_TRUE(key.has_value());
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}}).ok());
  EXPECT_EQ(runner.mechanism().PlanKey(), key);
  SequenceCache other = NewSequence(Atp(Blocks64()), 1);
  std::vector<float> other_out;
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}, {&other, &rows, 1, &other_out}}).ok());
  EXPECT_NE(runner.mechanism().PlanKey(), key) << "in company";
  while (sequence.n_tokens < 191) {
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}}).ok());
  }
  ASSERT_TRUE(runner.Step({{&sequence, &rows, 1, &out}}).ok());
  EXPECT_EQ(runner.mechanism().PlanKey(), std::nullopt) << "a block is closed";
}

// Tiles of 16 rows that fold on the way, of a prompt in one step, and rows spread over parts, one
// by one; with blocks that are longer than a part and shorter.
TEST_F(DeviceAtpTest, APromptHasTheBitsOfItsTokens) {
  for (int32_t block : {64, 512}) {
    AtpOptions o = Blocks64();
    o.block_tokens = block;
    const AttentionGeometry g{1, 4, 1, 8, std::nullopt, StorageType::kFloat32};
    const AttentionRows rows = RandomRows(g, block + 300, 2);
    RunOptions options{Atp(o)};
    options.make = MakeDeviceAtp;
    const std::vector<float> at_once = RunSequence(rows, options);
    options.chunk_tokens = 13;
    EXPECT_TRUE(SameBits(RunSequence(rows, options), at_once)) << block;
  }
}

// Half a step of 8 or 4 bits of what U, K' and V' or kept tokens spread over. An odd rank: what
// lies beside codes is aligned nevertheless.
TEST_F(DeviceAtpTest, CodedBlocksAreReadNearlyAsThoseThatAreNot) {
  struct Coded {
    AtpStorage basis, principal, kept;
    double most_error;
  };
  constexpr auto kCache = AtpStorage::kCache, kInt8 = AtpStorage::kInt8, kInt4 = AtpStorage::kInt4;
  for (const AtpBasis basis : {AtpBasis::kLayer, AtpBasis::kKv}) {
    const bool is_shared = basis == AtpBasis::kLayer;
    const AttentionRows rows = FactorRows(
        Geometry(is_shared ? StorageType::kFloat32 : StorageType::kBFloat16), 200, GapAt(7), 6);
    AtpOptions o = Blocks64();
    o.basis = basis;
    o.rank = RankFixed{7};
    if (!is_shared) o.block_tokens = 128;
    for (const Coded& coded :
         {Coded{kInt8, kCache, kCache, 0.002}, Coded{kInt4, kCache, kCache, 0.012},
          Coded{kCache, kInt8, kCache, 0.003}, Coded{kInt8, kInt8, kInt8, 0.003}}) {
      o.refine_tokens = coded.kept == kCache ? 0 : 20;
      RunOptions options{Atp(o)};
      options.make = MakeDeviceAtp;
      const std::vector<float> wide = RunSequence(rows, options);
      options.attention.atp.basis_storage = coded.basis;
      options.attention.atp.principal_storage = coded.principal;
      options.attention.atp.kept_storage = coded.kept;
      const std::vector<float> out = RunSequence(rows, options);
      double sum = 0;
      for (size_t i = 0; i < out.size(); ++i) sum += std::fabs(out[i] - wide[i]);
      const double error = sum / static_cast<double>(out.size());
      EXPECT_LT(error, coded.most_error) << NameOf(basis);
      EXPECT_GT(error, 1e-6) << NameOf(basis);
    }
  }
}

void ExpectSameBitsInAnyOrder(const AttentionRows& rows, const RunOptions& options) {
  const std::vector<float> forward = RunSequence(rows, options);
  for (auto order : {emulated::ThreadOrder::kBackward, emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    EXPECT_TRUE(SameBits(RunSequence(rows, options), forward));
  }
  emulated::SetThreadOrder(emulated::ThreadOrder::kForward);
}

TEST_F(DeviceAtpTest, CodedBlocksHaveTheSameBitsInAnyOrderOfThreads) {
  AtpOptions o = Blocks64();
  o.basis_storage = AtpStorage::kInt4;
  o.principal_storage = o.kept_storage = AtpStorage::kInt8;
  o.refine_tokens = 20;
  RunOptions options{Atp(o), 100};
  options.make = MakeDeviceAtp;
  ExpectSameBitsInAnyOrder(RandomRows(Geometry(), 140, 7), options);
}

TEST_F(DeviceAtpTest, MergedBlocksHaveTheSameBitsInAnyOrderOfThreads) {
  AtpOptions o = Blocks64();
  o.readout = AtpReadout::kLinear;
  o.merge = true;
  RunOptions options{Atp(o), 130};
  options.make = MakeDeviceAtp;
  ExpectSameBitsInAnyOrder(RandomRows(Geometry(), 290, 5), options);
}

TEST_F(DeviceAtpTest, SequencesOfDifferentOptionsShareAStep) {
  AtpOptions other = Blocks64(AtpPrefill::kExact);
  other.basis = AtpBasis::kLayer;
  other.block_tokens = 128;
  other.rank = RankFraction{0.5};
  other.refine_tokens = 9;
  AtpOptions merged = Blocks64();
  merged.readout = AtpReadout::kLinear;
  merged.merge = true;
  const AtpOptions options[] = {Blocks64(), other, merged};
  const int64_t n_prompt[] = {260, 200, 260};
  MechanismRunner runner = Runner(Geometry());
  std::vector<AttentionRows> rows;
  std::vector<SequenceCache> sequences;
  for (uint32_t i = 0; i < 3; ++i) {
    rows.push_back(RandomRows(Geometry(), 270, 3 + i));
    sequences.push_back(NewSequence(Atp(options[i]), n_prompt[i]));
  }
  std::vector<float> outs[3];
  while (sequences[0].n_tokens < 270) {
    const int64_t n = std::min<int64_t>(90, 270 - sequences[0].n_tokens);
    std::vector<MechanismRunner::Part> parts;
    for (int i = 0; i < 3; ++i) parts.push_back({&sequences[i], &rows[i], n, &outs[i]});
    ASSERT_TRUE(runner.Step(parts).ok());
  }
  for (int i = 0; i < 3; ++i) {
    RunOptions alone{Atp(options[i])};
    alone.n_prompt_tokens = n_prompt[i];
    EXPECT_TRUE(SameBits(outs[i], RunSequence(rows[i], alone))) << i;
  }
}

}  // namespace
}  // namespace lowkey
