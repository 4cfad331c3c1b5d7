// Optimised, Efficient and Super Attention against their definitions in double
// (attention_reference.py: optimised, efficient, super_attention).
#include "engine/attention/slices/host.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/kernels/kernels.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

using Matrix = std::vector<double>;  // [n_tokens, head_dim]

struct SliceCase {
  std::string name;
  Mechanism mechanism;
  Mechanism over = Mechanism::kEfficient;
  int64_t n_kv_heads = 4;
  int64_t head_dim = 32;
  StorageType type = StorageType::kFloat32;
  std::optional<int64_t> sliding_window = std::nullopt;
  KeyStorage key_storage = KeyStorage::kRotated;
};

constexpr int64_t kTokens = 200;
constexpr int64_t kHeads = 4;

std::vector<SliceCase> Cases() {
  std::vector<SliceCase> out;
  for (int64_t head_dim : {32, 64, 128}) {
    const std::string d = std::to_string(head_dim);
    out.push_back({"efficient_" + d, Mechanism::kEfficient, {}, 4, head_dim});
    out.push_back({"efficient_grouped_" + d, Mechanism::kEfficient, {}, 2, head_dim});
    for (int64_t n_kv_heads : {4, 2}) {
      out.push_back({absl::StrCat("no_keys_", n_kv_heads, "_", d),
                     Mechanism::kEfficient,
                     {},
                     n_kv_heads,
                     head_dim});
      out.back().key_storage = KeyStorage::kNone;
    }
    out.push_back({"optimised_" + d, Mechanism::kOptimised, {}, 4, head_dim});
    out.push_back({"optimised_grouped_" + d, Mechanism::kOptimised, {}, 2, head_dim});
    out.push_back({"super_" + d, Mechanism::kSuper, Mechanism::kEfficient, 4, head_dim});
    out.push_back({"super_optimised_" + d, Mechanism::kSuper, Mechanism::kOptimised, 2, head_dim});
    out.push_back({"super_standard_" + d, Mechanism::kSuper, Mechanism::kStandard, 2, head_dim});
  }
  for (KeyStorage storage : {KeyStorage::kRotated, KeyStorage::kNone}) {
    out.push_back({absl::StrCat("sliding_", std::string(NameOf(storage))),
                   Mechanism::kEfficient,
                   {},
                   4,
                   32,
                   StorageType::kFloat32,
                   70,
                   storage});
  }
  const size_t n = out.size();
  for (size_t i = 0; i < n; ++i) {
    out.push_back(out[i]);
    out.back().name += "_bf16";
    out.back().type = StorageType::kBFloat16;
  }
  return out;
}

class SliceAttentionTest : public testing::TestWithParam<SliceCase> {
 protected:
  AttentionGeometry geometry() const {
    const SliceCase& c = GetParam();
    return {2, kHeads, c.n_kv_heads, c.head_dim, c.sliding_window, c.type};
  }
  AttentionOptions options() const {
    AttentionOptions out;
    out.mechanism = GetParam().mechanism;
    out.efficient.key_storage = GetParam().key_storage;
    return out;
  }
  // Columns [offset, offset + head_dim) of every row, as the cache holds them.
  Matrix Cached(const AttentionRows& rows, int64_t layer, int64_t offset) const {
    Matrix out;
    for (int64_t i = 0; i < rows.n_tokens; ++i) {
      for (int64_t j = 0; j < GetParam().head_dim; ++j) {
        const float x = rows.row(layer, i)[offset + j];
        out.push_back(GetParam().type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x)));
      }
    }
    return out;
  }
  bool KeysAreSlices() const {
    const SliceCase& c = GetParam();
    return (c.mechanism == Mechanism::kSuper ? c.over : c.mechanism) == Mechanism::kEfficient;
  }
  bool ValuesAreSlices() const {
    return GetParam().mechanism != Mechanism::kSuper || GetParam().over != Mechanism::kStandard;
  }
  Matrix Keys(const AttentionRows& rows, int64_t layer, int64_t head) const;
  Matrix Values(const AttentionRows& rows, int64_t layer, int64_t head) const;
  std::vector<double> Reference(const AttentionRows& rows, int64_t layer) const;
};

INSTANTIATE_TEST_SUITE_P(Cases, SliceAttentionTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

Matrix SliceAttentionTest::Keys(const AttentionRows& rows, int64_t layer, int64_t head) const {
  const AttentionGeometry g = geometry();
  const int64_t d = g.head_dim, kv_head = head / g.group();
  if (!KeysAreSlices()) return Cached(rows, layer, (g.n_heads + kv_head) * d);
  Matrix k = Cached(rows, layer, (g.n_heads + 2 * g.n_kv_heads + kv_head) * d);
  for (int64_t i = 0; i < rows.n_tokens; ++i) {
    for (int64_t j = 0; j < d / 2; ++j) {
      const double angle = static_cast<double>(i) * std::pow(10000.0, -2.0 * j / d);
      const double a = k[i * d + j], b = k[i * d + d / 2 + j];
      k[i * d + j] = a * std::cos(angle) - b * std::sin(angle);
      k[i * d + d / 2 + j] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
  return k;
}

Matrix SliceAttentionTest::Values(const AttentionRows& rows, int64_t layer, int64_t head) const {
  const AttentionGeometry g = geometry();
  const int64_t d = g.head_dim;
  const int64_t first = g.n_heads + g.n_kv_heads * (ValuesAreSlices() ? 2 : 1);
  const Matrix v = Cached(rows, layer, (first + head / g.group()) * d);
  if (GetParam().mechanism != Mechanism::kSuper) return v;
  const MechanismWeights weights = TestWeights(g, GetParam().over);
  Matrix aligned(v.size(), 0.0);
  for (int64_t i = 0; i < rows.n_tokens; ++i) {
    for (int64_t t = 0; t <= i; ++t) {
      float w = 0;
      LoadFloats(weights.alignment[layer], i * (i + 1) / 2 + t, 1, &w);
      for (int64_t j = 0; j < d; ++j) aligned[i * d + j] += double{w} * v[t * d + j];
    }
  }
  return aligned;
}

std::vector<double> SliceAttentionTest::Reference(const AttentionRows& rows, int64_t layer) const {
  const AttentionGeometry g = geometry();
  const int64_t d = g.head_dim, n = rows.n_tokens;
  std::vector<double> out(n * g.n_heads * d, 0.0);
  for (int64_t head = 0; head < g.n_heads; ++head) {
    const Matrix k = Keys(rows, layer, head), v = Values(rows, layer, head);
    for (int64_t i = 0; i < n; ++i) {
      const float* q = rows.row(layer, i) + head * d;
      const int64_t first = std::max<int64_t>(0, i + 1 - g.sliding_window.value_or(n));
      std::vector<double> s(i + 1, 0.0);
      for (int64_t t = first; t <= i; ++t) {
        for (int64_t j = 0; j < d; ++j) s[t] += q[j] * k[t * d + j] / std::sqrt(1.0 * d);
      }
      const double top = *std::max_element(s.begin() + first, s.end());
      double sum = 0;
      for (int64_t t = first; t <= i; ++t) sum += std::exp(s[t] - top);
      for (int64_t t = first; t <= i; ++t) {
        const double w = std::exp(s[t] - top) / sum;
        for (int64_t j = 0; j < d; ++j) out[(i * g.n_heads + head) * d + j] += w * v[t * d + j];
      }
    }
  }
  return out;
}

TEST_P(SliceAttentionTest, EqualsTheDefinitionInDouble) {
  const AttentionRows rows = RandomRows(geometry(), kTokens, 3);
  RunOptions run{options(), 70};
  run.over = GetParam().over;
  const std::vector<float> got = RunSequence(rows, run);
  // V' and rotated keys are rounded to the cache's type before they are read; queries and weights
  // where the CPU multiplies bf16.
  const bool rounds = Kernels().rounds_activations || GetParam().mechanism == Mechanism::kSuper ||
                      (KeysAreSlices() && GetParam().key_storage == KeyStorage::kRotated);
  const double tolerance = GetParam().type == StorageType::kFloat32 ? 2e-5 : rounds ? 2e-2 : 1e-4;
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_LE(MaxDifference(got.data() + layer * kTokens * kHeads * GetParam().head_dim,
                            Reference(rows, layer)),
              tolerance);
  }
}

TEST(SliceAttention, AlignmentByTheIdentityIsEfficientAttention) {
  const AttentionGeometry g{1, 4, 4, 32, std::nullopt, StorageType::kFloat32};
  const AttentionRows rows = RandomRows(g, 300, 5);
  MechanismWeights weights = TestWeights(g, Mechanism::kEfficient);
  std::vector<float> identity;
  for (int64_t i = 0; i < 512; ++i) {
    for (int64_t j = 0; j <= i; ++j) identity.push_back(i == j ? 1.0f : 0.0f);
  }
  weights.alignment[0].data = reinterpret_cast<const std::byte*>(identity.data());
  std::vector<float> outs[2];
  const Mechanism mechanisms[] = {Mechanism::kEfficient, Mechanism::kSuper};
  for (int i = 0; i < 2; ++i) {
    MechanismRunner runner(g, mechanisms[i], weights);
    AttentionOptions options;
    options.mechanism = mechanisms[i];
    options.efficient.key_storage = KeyStorage::kNone;
    SequenceCache sequence = NewSequence(options, 300);
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 300, &outs[i]}}).ok());
  }
  EXPECT_TRUE(SameBits(outs[0], outs[1]));
}

// The table of docs/bundles.md says what a mechanism caches.
TEST(SliceAttention, HoldsWhatItsTableSays) {
  const AttentionGeometry g{2, 4, 2, 32, std::nullopt, StorageType::kBFloat16};
  const int64_t head_bytes = 2 * 32 * 2;  // of all KV heads, a token and layer
  const std::pair<AttentionOptions, int64_t> cases[] = {
      {EqualOptions(Mechanism::kEfficient)[0], 2 * head_bytes},
      {EqualOptions(Mechanism::kEfficient)[1], head_bytes},
      {EqualOptions(Mechanism::kOptimised)[0], 2 * head_bytes},
      {EqualOptions(Mechanism::kSuper)[0], 2 * head_bytes}};
  for (const auto& [options, token_bytes] : cases) {
    MechanismRunner runner(g, options.mechanism);
    SequenceCache sequence = NewSequence(options, 128);
    std::vector<float> out;
    const AttentionRows rows = RandomRows(g, 128, 1);
    ASSERT_TRUE(runner.Step({{&sequence, &rows, 128, &out}}).ok());
    EXPECT_EQ(runner.cache().used_bytes(), 2 * 128 * token_bytes);
  }
}

TEST(SliceAttention, OnlySuperHasALongestSequence) {
  const AttentionGeometry g{1, 2, 2, 32, std::nullopt, StorageType::kFloat32};
  EXPECT_EQ(MechanismRunner(g, Mechanism::kSuper).mechanism().max_tokens(), 512);
  EXPECT_EQ(MechanismRunner(g, Mechanism::kEfficient).mechanism().max_tokens(), std::nullopt);
}

}  // namespace
}  // namespace lowkey
