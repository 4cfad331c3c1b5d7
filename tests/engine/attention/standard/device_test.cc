// The mechanism that plans for a device; what its kernels compute is in kernels/cuda's tests, what
// every mechanism promises in attention_test, run on a device.
#include "engine/attention/standard/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/attention/pages/quantized_kv.h"
#include "engine/attention/place/host_attention.h"
#include "engine/attention/standard/host.h"
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
  return std::make_unique<DeviceStandard>(Mechanism::kStandard, context);
}

class DeviceStandardTest : public testing::Test {
 protected:
  static MechanismRunner RunnerOf(const AttentionGeometry& geometry) {
    MechanismRunner::Options options;
    options.make = MakeDeviceStandard;
    return {geometry, Mechanism::kStandard, options};
  }
};

// Queries and weights are rounded to bf16.
TEST_F(DeviceStandardTest, MatchesTheReferenceAndItselfInAnyChunk) {
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
TEST_F(DeviceStandardTest, ALongPromptHasTheBitsOfItsTokens) {
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

TEST_F(DeviceStandardTest, StepsThatDecodeAlikeHaveOneKey) {
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

// Scales, middles and codes of a closed page's keys and values, in the order of numbers. Of the
// host's pages and the device's, which lie differently.
struct ClosedNumbers {
  std::vector<uint16_t> numbers;  // [key of the page's token, then value][head_dim][scale, middle]
  std::vector<int> codes;
  bool operator==(const ClosedNumbers&) const = default;
};

ClosedNumbers OfTheHost(const AttentionGeometry& g, CacheStorage storage, const Slab& slab) {
  const QuantizedTile tile = QuantizedTileOf(g, storage, slab, 0, 0);
  const int64_t d = g.head_dim, padded = g.head_dim_padded();
  const auto codes_of = [&](const std::byte* at, int64_t n) {
    std::vector<int8_t> codes(n);
    if (storage == CacheStorage::kInt4) {
      Kernels().unpack_codes(4, reinterpret_cast<const uint8_t*>(at), codes.data(), n);
    } else {
      std::memcpy(codes.data(), at, n);
    }
    return codes;
  };
  const std::vector<int8_t> keys = codes_of(tile.keys, kPageTokens * d);
  const std::vector<int8_t> values = codes_of(tile.values, kPageTokens * padded);
  ClosedNumbers out;
  for (int64_t i = 0; i < kPageTokens * d; ++i) {
    const int64_t t = i / d, j = i % d, at = t / kGroup * DotWidth(g) + j;
    out.numbers.insert(out.numbers.end(), {tile.key_scales[at], tile.key_middles[at]});
    out.codes.push_back(keys[(t / kGroup * d + j) * kGroup + t % kGroup]);
  }
  for (int64_t i = 0; i < kPageTokens * d; ++i) {
    const int64_t t = i / d, j = i % d, at = j / kGroup * kPageTokens + t;
    out.numbers.insert(out.numbers.end(), {tile.value_scales[at], tile.value_middles[at]});
    out.codes.push_back(values[t * padded + j]);
  }
  return out;
}

ClosedNumbers OfTheDevice(const AttentionGeometry& g, CacheStorage storage, const Slab& slab) {
  const int64_t d = g.head_dim, bits = storage == CacheStorage::kInt8 ? 8 : 4;
  const int64_t n_groups = (d + kGroup - 1) / kGroup;
  std::vector<uint8_t> tile(ClosedTileBytes(d, bits));
  EXPECT_GE(slab.size_bytes(), ClosedTileBytes(d, bits));
  EXPECT_TRUE(TestDevice()->Download(slab.data(), tile.data(), ClosedTileBytes(d, bits)).ok());
  const auto* numbers =
      reinterpret_cast<const uint16_t*>(tile.data() + 2 * ClosedPlaneBytes(d, bits));
  ClosedNumbers out;
  for (int64_t i = 0; i < 2 * kPageTokens * d; ++i) {
    const int64_t t = i / d % kPageTokens, j = i % d;
    const bool is_key = i < kPageTokens * d;
    const int64_t at = is_key ? t / kGroup * d + j : 2 * d + t * n_groups + j / kGroup;
    out.numbers.insert(out.numbers.end(), {numbers[2 * at], numbers[2 * at + 1]});
    out.codes.push_back(bits == 8 ? tile[i] - 128 : (tile[i / 2] >> (i % 2 * 4) & 15) - 8);
  }
  return out;
}

TEST_F(DeviceStandardTest, ClosedPagesHaveTheHostsCodes) {
  for (const StorageType type : {StorageType::kFloat32, StorageType::kBFloat16}) {
    for (const int64_t head_dim : {20, 80}) {
      for (const CacheStorage storage : {CacheStorage::kInt8, CacheStorage::kInt4}) {
        const AttentionGeometry g{1, 1, 1, head_dim, std::nullopt, type};
        AttentionRows rows = RandomRows(g, 70, 6);
        for (int64_t t = 0; t < 64; ++t) rows.row(0, t)[head_dim] = 1.0f;  // no spread
        MechanismRunner runner = RunnerOf(g);
        SequenceCache sequence = NewSequence(Standard(storage), 70);
        std::vector<float> out;
        ASSERT_TRUE(runner.Step({{&sequence, &rows, 70, &out}}).ok());
        // The host's, over the same rows.
        ThreadPool pool(1);
        auto cache = Cache::Create(1 << 20, PageBytes(g)).value();
        HostStandard host(Mechanism::kStandard, {g, cache.get(), &pool});
        SequenceCache there = NewSequence(Standard(storage), 70);
        const Segment segment{&there, 0, 70, 0};
        ASSERT_TRUE(host.Plan({&segment, 1}).ok());
        const float* q = rows.row(0, 0);
        host.Attend(
            {0, nullptr, 0, q, q + head_dim, q + 2 * head_dim, rows.ld(), out.data(), head_dim});
        EXPECT_EQ(OfTheDevice(g, storage, *sequence.state.As<StandardState>().closed_pages[0]),
                  OfTheHost(g, storage, *there.state.As<StandardState>().closed_pages[0]))
            << NameOf(storage) << ", heads of " << head_dim;
      }
    }
  }
}

// A prompt at once, in chunks that begin and end anywhere in a page, and token by token; 512 tokens
// are a span.
TEST_F(DeviceStandardTest, AQuantizedCacheGivesTheSameBitsInAnyChunk) {
  for (const CacheStorage storage : {CacheStorage::kInt8, CacheStorage::kInt4}) {
    for (const std::optional<int64_t>& window :
         {std::optional<int64_t>(), std::optional<int64_t>(50)}) {
      const AttentionRows rows = RandomRows(Geometry(3, 64, window), 600, 7);
      const std::vector<float> at_once = RunSequence(rows, {Standard(storage)});
      EXPECT_LE(MaxDifference(at_once.data(), ReferenceStandard(rows, 0)),
                storage == CacheStorage::kInt8 ? 0.03 : 0.3);
      RunOptions options{Standard(storage), 93};
      options.n_prompt_tokens = 500;
      EXPECT_TRUE(SameBits(RunSequence(rows, options), at_once));
      options.chunk_tokens = 1;
      options.n_prompt_tokens = 1;
      EXPECT_TRUE(SameBits(RunSequence(rows, options), at_once));
    }
  }
}

// Sequences with caches of every storage, two of them in the step that fills a page.
TEST_F(DeviceStandardTest, CachesOfDifferentStorageShareAStep) {
  const CacheStorage storages[] = {CacheStorage::kInt8, CacheStorage::kDtype, CacheStorage::kInt4,
                                   CacheStorage::kInt8};
  const AttentionGeometry g = Geometry(4, 32);
  MechanismRunner runner = RunnerOf(g);
  std::vector<AttentionRows> rows;
  std::vector<SequenceCache> sequences;
  std::vector<std::vector<float>> outs(4);
  for (uint32_t i = 0; i < 4; ++i) {
    rows.push_back(RandomRows(g, 140, 10 + i));
    sequences.push_back(NewSequence(Standard(storages[i]), 60));
  }
  for (int64_t n : {60, 1, 1, 1, 1, 70, 1, 1, 1, 1, 2}) {
    std::vector<MechanismRunner::Part> parts;
    for (int i = 0; i < 4; ++i) parts.push_back({&sequences[i], &rows[i], n, &outs[i]});
    ASSERT_TRUE(runner.Step(parts).ok());
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(SameBits(outs[i], RunSequence(rows[i], {Standard(storages[i])}))) << i;
  }
}

// A cache that another mechanism lends is never closed, whatever its options say of `standard`.
TEST_F(DeviceStandardTest, OptionsOfStandardAreReadOfItsSequencesAlone) {
  const AttentionRows rows = RandomRows(Geometry(1, 32), 130, 8);
  MechanismRunner runner = RunnerOf(rows.geometry);
  AttentionOptions options = Standard(CacheStorage::kInt4);
  options.mechanism = Mechanism::kAtp;
  SequenceCache sequence = NewSequence(options, 130);
  const Segment segment{&sequence, 0, 130, 0};
  ASSERT_TRUE(runner.mechanism().Plan({&segment, 1}).ok());
  EXPECT_TRUE(sequence.state.is_empty());
}

TEST_F(DeviceStandardTest, TheHostAttendsToHeadsThatAreTooWide) {
  const AttentionRows rows = RandomRows({1, 1, 1, 520, {}, StorageType::kFloat32}, 10, 5);
  MechanismRunner runner(rows.geometry, Mechanism::kStandard);
  EXPECT_NE(dynamic_cast<HostAttention*>(&runner.mechanism()), nullptr);
  const std::vector<float> out = RunSequence(rows, {Standard()});
  EXPECT_LE(MaxDifference(out.data(), ReferenceStandard(rows, 0)), 4e-6);
}

}  // namespace
}  // namespace lowkey
