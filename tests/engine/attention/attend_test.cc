// Mechanisms through the tools' entry, Attend of engine/runtime/inspect.h.
#include <algorithm>
#include <functional>

#include "engine/runtime/inspect.h"
#include "tests/engine/attention/attention_testing.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

struct Tensors {
  std::vector<float> q, k, v;
};

// [n_heads, n, head_dim] of head columns starting at `from`.
std::vector<float> Heads(const AttentionRows& rows, int64_t from, int64_t n_heads) {
  std::vector<float> out;
  const int64_t d = rows.geometry.head_dim;
  for (int64_t h = 0; h < n_heads; ++h) {
    for (int64_t i = 0; i < rows.n_tokens; ++i) {
      const float* x = rows.row(0, i) + (from + h) * d;
      out.insert(out.end(), x, x + d);
    }
  }
  return out;
}

Tensors Split(const AttentionRows& rows) {
  const AttentionGeometry& g = rows.geometry;
  return {Heads(rows, 0, g.n_heads), Heads(rows, g.n_heads, g.n_kv_heads),
          Heads(rows, g.n_heads + g.n_kv_heads, g.n_kv_heads)};
}

AttendInputs Inputs(const AttentionRows& rows, const Tensors& t, const AttentionOptions& options) {
  AttendInputs in;
  in.device = NewTestDevice();
  in.n_tokens = rows.n_tokens;
  in.n_heads = rows.geometry.n_heads, in.n_kv_heads = rows.geometry.n_kv_heads;
  in.head_dim = rows.geometry.head_dim;
  in.q = t.q, in.k = t.k, in.v = t.v;
  in.attention = options;
  if (rows.geometry.cache_type == StorageType::kBFloat16) {
    in.cache_dtype = EngineOptions::Dtype::kBFloat16;
  }
  return in;
}

// [n, n_heads * head_dim] as [n_heads, n, head_dim].
std::vector<float> ByHead(const std::vector<float>& out, const AttentionRows& rows) {
  const AttentionGeometry& g = rows.geometry;
  std::vector<float> by_head;
  for (int64_t h = 0; h < g.n_heads; ++h) {
    for (int64_t i = 0; i < rows.n_tokens; ++i) {
      const float* x = out.data() + (i * g.n_heads + h) * g.head_dim;
      by_head.insert(by_head.end(), x, x + g.head_dim);
    }
  }
  return by_head;
}

TEST(Attend, HasTheMechanismsBits) {
  AtpOptions exact{RankFixed{6}, AtpBasis::kLayer, AtpPrefill::kExact, 64, 4, 0};
  AtpOptions compressed{RankFixed{6}, AtpBasis::kKv, AtpPrefill::kCompressed, 64, 0, 1};
  for (StorageType type : {StorageType::kFloat32, StorageType::kBFloat16}) {
    const AttentionRows rows = RandomRows({1, 4, 2, 20, std::nullopt, type}, 300, 1);
    const Tensors tensors = Split(rows);
    for (const AttentionOptions& options : {Standard(), Atp(exact), Atp(compressed)}) {
      for (int64_t chunk : {1, 7, 512}) {
        AttendInputs in = Inputs(rows, tensors, options);
        in.n_prompt_tokens = 150;
        in.chunk_tokens = chunk;
        in.n_threads = 2;
        const auto got = Attend(in);
        ASSERT_TRUE(got.ok()) << got.status();
        const std::vector<float> want =
            RunSequence(rows, {options, int64_t{1} << 20, int64_t{150}});
        EXPECT_TRUE(SameBits(got->out, ByHead(want, rows)));
      }
    }
  }
}

TEST(Attend, ReportsBytesAndRank) {
  const AttentionRows rows = RandomRows({1, 4, 2, 16, std::nullopt, {}}, 1000, 2);
  const Tensors tensors = Split(rows);
  const auto standard = Attend(Inputs(rows, tensors, Standard()));
  ASSERT_TRUE(standard.ok());
  EXPECT_EQ(standard->rank, 0);
  EXPECT_EQ(standard->cache_bytes, 16 * PageBytes(rows.geometry));
  EXPECT_EQ(standard->standard_cache_bytes, standard->cache_bytes);
  AtpOptions o{RankFixed{6}, AtpBasis::kLayer, AtpPrefill::kCompressed, 64, 4, 0};
  const auto atp = Attend(Inputs(rows, tensors, Atp(o)));
  ASSERT_TRUE(atp.ok());
  EXPECT_EQ(atp->rank, 6);
  EXPECT_LT(atp->cache_bytes, standard->cache_bytes / 2);
  EXPECT_EQ(atp->standard_cache_bytes, standard->cache_bytes);
}

// Mechanisms over slices of x: the same bits as through the contract's runner.
TEST(Attend, TakesSlicesOfX) {
  const AttentionGeometry g{1, 4, 4, 8, std::nullopt, StorageType::kFloat32};
  const AttentionRows rows = RandomRows(g, 130, 5);
  const Tensors tensors = Split(rows);
  std::vector<float> x;
  for (int64_t i = 0; i < 130; ++i) {
    const float* row = rows.row(0, i) + 3 * 32;
    x.insert(x.end(), row, row + 32);
  }
  const MechanismWeights weights = TestWeights(g, Mechanism::kOptimised);
  std::vector<float> alignment(weights.alignment[0].size());
  LoadFloats(weights.alignment[0], 0, weights.alignment[0].size(), alignment.data());
  for (Mechanism mechanism : {Mechanism::kOptimised, Mechanism::kEfficient, Mechanism::kSuper}) {
    AttentionOptions options;
    options.mechanism = mechanism;
    AttendInputs in = Inputs(rows, tensors, options);
    in.x = x;
    in.v = {};
    in.over = Mechanism::kOptimised;
    if (mechanism == Mechanism::kEfficient) in.k = {};
    if (mechanism == Mechanism::kSuper) in.alignment = alignment;
    const auto got = Attend(in);
    ASSERT_TRUE(got.ok()) << got.status();
    RunOptions run{options};
    run.over = Mechanism::kOptimised;
    EXPECT_TRUE(SameBits(got->out, ByHead(RunSequence(rows, run), rows)))
        << MechanismName(mechanism);
    in.x = in.x.subspan(1);
    EXPECT_EQ(Attend(in).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Attend, TakesTheInputThatABasisIsOf) {
  const AttentionRows rows = RandomRows({1, 4, 2, 8, std::nullopt, {}}, 300, 6);
  const Tensors tensors = Split(rows);
  const AttentionOptions options =
      Atp({RankFixed{6}, AtpBasis::kInput, AtpPrefill::kCompressed, 64, 4, 0});
  AttendInputs in = Inputs(rows, tensors, options);
  EXPECT_EQ(Attend(in).status().message(), "x: 0 elements, expected 9600");
  std::vector<float> x;
  for (int64_t i = 0; i < 300; ++i) x.insert(x.end(), rows.row(0, i) + 64, rows.row(0, i) + 96);
  in.x = x;
  const auto got = Attend(in);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(SameBits(got->out, ByHead(RunSequence(rows, {options}), rows)));
}

TEST(Attend, SuperEndsWithItsAlignment) {
  const AttentionGeometry g{1, 2, 2, 8, std::nullopt, StorageType::kFloat32};
  const AttentionRows rows = RandomRows(g, 10, 5);
  const Tensors tensors = Split(rows);
  AttentionOptions options;
  options.mechanism = Mechanism::kSuper;
  AttendInputs in = Inputs(rows, tensors, options);
  in.over = Mechanism::kStandard;
  const std::vector<float> alignment(45, 1.0f);  // nine rows
  in.alignment = alignment;
  EXPECT_EQ(Attend(in).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Attend, RefusesSizesThatDisagree) {
  const AttentionRows rows = RandomRows({1, 4, 2, 8, std::nullopt, {}}, 10, 3);
  const Tensors tensors = Split(rows);
  const std::function<void(AttendInputs&)> edits[] = {
      [](AttendInputs& in) { in.n_tokens = 0; },
      [](AttendInputs& in) { in.n_tokens = 11; },
      [](AttendInputs& in) { in.n_tokens = -1; },
      [](AttendInputs& in) { in.n_tokens = int64_t{1} << 60; },
      [](AttendInputs& in) { in.n_heads = 0; },
      [](AttendInputs& in) { in.n_heads = 5; },
      [](AttendInputs& in) { in.n_kv_heads = 3; },
      [](AttendInputs& in) { in.n_kv_heads = 0; },
      [](AttendInputs& in) { in.n_kv_heads = 8; },
      [](AttendInputs& in) { in.head_dim = 0; },
      [](AttendInputs& in) { in.head_dim = 4096; },
      [](AttendInputs& in) { in.chunk_tokens = 0; },
      [](AttendInputs& in) { in.n_threads = 0; },
      [](AttendInputs& in) { in.q = in.q.subspan(1); },
      [](AttendInputs& in) { in.v = {}; },
      [](AttendInputs& in) { in.over = Mechanism::kLasso; },
      [](AttendInputs& in) {
        in.attention.mechanism = Mechanism::kAtp, in.attention.atp.block_tokens = 1;
      },
  };
  for (size_t i = 0; i < std::size(edits); ++i) {
    AttendInputs in = Inputs(rows, tensors, Standard());
    edits[i](in);
    EXPECT_EQ(Attend(in).status().code(), absl::StatusCode::kInvalidArgument) << i;
  }
}

}  // namespace
}  // namespace lowkey
