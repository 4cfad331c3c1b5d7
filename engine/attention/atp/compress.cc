#include "engine/attention/atp/compress.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/attention/atp/input_pages.h"
#include "engine/attention/atp/kept_tokens.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "engine/lowrank/alternating.h"

namespace lowkey {
namespace {

constexpr int kAlternatingSweeps = 2;  // the number of the reference; a third sweep changes little

// Stores a row of n floats in `type`, which must not be int8.
void StoreRow(const float* x, int64_t n, StorageType type, std::byte* out) {
  if (type == StorageType::kFloat32) {
    std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
  } else {
    Kernels().to_bf16(x, reinterpret_cast<uint16_t*>(out), n);
  }
}

constexpr float kMostInt8 = 127.0f, kMostInt4 = 7.0f;

// Returns the least scale with which the codes of n floats are at most `most`.
float CodeScale(const float* x, int64_t n, float most) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest / most;
}

int8_t ToCode(float x, float scale, float most) {
  const float units = std::nearbyint(x / scale);  // 0 / 0 and NaN get code 0
  return std::isnan(units) ? 0 : static_cast<int8_t>(std::clamp(units, -most, most));
}

// Subtracts the mean of n rows [ld] from them.
void Center(int64_t n, int64_t ld, float* rows, float* mean) {
  std::fill_n(mean, ld, 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < ld; ++j) mean[j] += rows[i * ld + j];
  }
  for (int64_t j = 0; j < ld; ++j) mean[j] /= static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < ld; ++j) rows[i * ld + j] -= mean[j];
  }
}

// Gathers one KV head's keys and values of the block's tokens, without their means: token i is row
// i, keys are columns [0, d), values [padded, padded + d). `means` gets both means.
void GatherCentered(const AttentionGeometry& g, absl::Span<const PageHandle> pages,
                    const CompressPart& part, int64_t n_sinks, CompressWorkspace& w) {
  const int64_t padded = g.head_dim_padded();
  const int64_t ld = 2 * padded;
  const int64_t n = static_cast<int64_t>(pages.size()) * kPageTokens - n_sinks;
  w.tokens.assign(n * ld, 0.0f);
  int64_t row = 0;
  for (size_t p = 0; p < pages.size(); ++p) {
    const int64_t begin = p == 0 ? n_sinks : 0;
    float* out = w.tokens.data() + row * ld;
    ReadKv(g, TileOf(g, pages[p], part.layer, part.kv_head), {begin}, out, out + padded, ld);
    row += kPageTokens - begin;
  }
  w.means.resize(ld);
  Center(n, ld, w.tokens.data(), w.means.data());
}

// Gathers the layer's inputs, without their mean, into the workspace's columns, which are large
// enough.
void GatherInputs(const AttentionGeometry& g, absl::Span<const std::shared_ptr<Slab>> inputs,
                  int64_t layer, int64_t n_sinks, CompressWorkspace& w) {
  float* at = w.columns.data();
  for (size_t p = 0; p < inputs.size(); ++p) {
    const int64_t begin = p == 0 ? n_sinks : 0;
    ReadInputs(g, *inputs[p], layer, begin, at);
    at += (kPageTokens - begin) * g.input_dim();
  }
  w.means.resize(g.input_dim());
  Center((at - w.columns.data()) / g.input_dim(), g.input_dim(), w.columns.data(), w.means.data());
}

// Appends columns [from, from + d) of tokens to `columns` at `at`, scaled to unit Frobenius norm,
// so that keys and values weigh the same in the basis.
void AppendScaled(const std::vector<float>& tokens, int64_t ld_tokens, int64_t from, int64_t d,
                  float* at, int64_t ld) {
  const auto n = static_cast<int64_t>(tokens.size()) / ld_tokens;
  double energy = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < d; ++j) {
      const float x = tokens[i * ld_tokens + from + j];
      energy += static_cast<double>(x) * x;
    }
  }
  const auto scale = static_cast<float>(1.0 / std::max(std::sqrt(energy), 1e-12));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < d; ++j) at[i * ld + j] = tokens[i * ld_tokens + from + j] * scale;
  }
}

// Finds U [n, rank] of workspace.columns [n, n_cols] and leaves it in workspace.u_transposed [rank,
// n]. The options say the decomposition and the rank, at most max_rank. Surplus rows are zero.
int64_t FindBasis(const AtpOptions& o, int64_t n, int64_t n_cols, int64_t max_rank,
                  CompressWorkspace& w) {
  const MatrixView m{w.columns.data(), n, n_cols, n_cols};
  int64_t rank = max_rank, found = std::min(max_rank, n);
  if (const auto* energy = std::get_if<RankEnergy>(&o.rank)) {
    rank = found = EnergyBasis(m, energy->share, w.basis, w.u);
  } else if (std::holds_alternative<RankEntropy>(o.rank)) {
    rank = found = std::clamp<int64_t>(SvdEntropyRank(SingularValues(m)), 1, found);
  }
  if (o.decomposition == AtpDecomposition::kAlternating) {
    w.u.resize(n * found);
    AlternatingBasis(m, found, kAlternatingSweeps, w.basis, w.u.data());
  } else if (!std::holds_alternative<RankEnergy>(o.rank)) {
    w.u.resize(n * found);
    PrincipalBasis(m, found, w.basis, w.u.data());
  }
  w.u_transposed.assign(rank * n, 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < found; ++j) w.u_transposed[j * n + i] = w.u[i * found + j];
  }
  return rank;
}

// Stores U tile by tile. The scales of its columns, 1 before, go to the workspace.
void StoreBasis(const PrincipalBlock& block, int64_t rank, CompressWorkspace& w, std::byte* out) {
  const StorageType type = block.shape.u_type;
  const int64_t n = block.shape.n_tokens - block.n_sinks;
  float tile[kPageTokens];
  for (int64_t j = 0; j < rank; ++j) {
    const float* column = w.u_transposed.data() + j * n;
    if (type == StorageType::kInt8) w.u_scales[j] = CodeScale(column, n, kMostInt8);
    for (int64_t t = 0; t < block.shape.n_tokens; t += kPageTokens) {
      const int64_t n_zero = t == 0 ? block.n_sinks : 0;
      std::fill_n(tile, n_zero, 0.0f);
      std::copy_n(column + t + n_zero - block.n_sinks, kPageTokens - n_zero, tile + n_zero);
      const int64_t at = (t / kPageTokens * rank + j) * kPageTokens;
      if (type != StorageType::kInt8) {
        StoreRow(tile, kPageTokens, type, out + at * StorageBytes(type));
        continue;
      }
      auto* to = reinterpret_cast<int8_t*>(out) + at;
      for (int64_t i = 0; i < kPageTokens; ++i) to[i] = ToCode(tile[i], w.u_scales[j], kMostInt8);
    }
  }
}

// Stores U in 4 bits, group by group.
void StorePackedBasis(const PrincipalBlock& block, int64_t rank, const CompressWorkspace& w,
                      std::byte* out) {
  const int64_t n = block.shape.n_tokens - block.n_sinks, half = rank * kBasisGroup / 2;
  std::vector<uint8_t> codes(rank * kBasisGroup);
  for (int64_t t = 0; t < block.shape.n_tokens; t += kBasisGroup) {
    auto* scales = reinterpret_cast<uint16_t*>(out);
    for (int64_t j = 0; j < rank; ++j) {
      float group[kBasisGroup];
      for (int64_t i = 0; i < kBasisGroup; ++i) {
        const int64_t row = t + i - block.n_sinks;
        group[i] = row < 0 ? 0.0f : w.u_transposed[j * n + row];
      }
      const BFloat16 scale = ToBFloat16(CodeScale(group, kBasisGroup, kMostInt4));
      scales[j] = scale.bits;
      for (int64_t i = 0; i < kBasisGroup; ++i) {
        codes[j * kBasisGroup + i] =
            static_cast<uint8_t>(ToCode(group[i], ToFloat(scale), kMostInt4) + 8);
      }
    }
    auto* packed = reinterpret_cast<uint8_t*>(scales + rank);
    for (int64_t i = 0; i < half; ++i) {
      packed[i] = static_cast<uint8_t>(codes[i] | codes[half + i] << 4);
    }
    out += block.shape.UGroupBytes(rank);
  }
}

// Where rows of principal keys or values, followed by the mean, come from and go to.
struct PrincipalRowsTarget {
  int64_t from = 0;   // their column in the workspace's `projected` and `means`
  int64_t width = 0;  // stored
  std::byte* rows = nullptr;
  float* scales = nullptr;  // int8 only
};

void StoreInt8Row(const float* x, const PrincipalRowsTarget& to, int64_t row, float* rest) {
  const float scale = CodeScale(x, to.width, kMostInt8);
  auto* out = reinterpret_cast<int8_t*>(to.rows) + row * to.width;
  to.scales[row] = scale;
  for (int64_t j = 0; j < to.width; ++j) {
    out[j] = ToCode(x[j], scale, kMostInt8);
    rest[j] = x[j] - scale * static_cast<float>(out[j]);
  }
}

void StoreRows(const AttentionGeometry& g, const PrincipalShape& shape, int64_t rank,
               const CompressWorkspace& w, const PrincipalRowsTarget& to) {
  const int64_t ld = 2 * g.head_dim_padded();
  std::vector<float> row(to.width), rest(to.width);
  const int64_t row_bytes = to.width * StorageBytes(shape.principal_type);
  for (int64_t r = 0; r <= rank; ++r) {
    const float* from = (r == rank ? w.means.data() : w.projected.data() + r * ld) + to.from;
    const float scale = r == rank ? 1.0f : w.u_scales[r];
    for (int64_t j = 0; j < g.head_dim; ++j) row[j] = from[j] * scale;
    if (shape.principal_type != StorageType::kInt8) {
      StoreRow(row.data(), to.width, shape.principal_type, to.rows + r * row_bytes);
      continue;
    }
    StoreInt8Row(row.data(), to, r, rest.data());
    if (r == rank) StoreInt8Row(rest.data(), to, r + 1, row.data());
  }
}

// Stores K' = U^T (K - k_mean) and V' = U^T (V - v_mean), times the scales of U's columns. The
// workspace holds the head's centered tokens and means.
void StoreProjected(const AttentionGeometry& g, const PrincipalShape& shape, int64_t n,
                    CompressWorkspace& w, const PrincipalView& view, std::byte* keys) {
  const int64_t ld = 2 * g.head_dim_padded();
  w.projected.resize(view.rank * ld);
  Kernels().Gemm(StorageType::kFloat32,
                 {w.u_transposed.data(), n, w.tokens.data(), ld, Kernels().panel_columns,
                  w.projected.data(), ld, view.rank, ld, n});
  std::byte* values = keys + (view.values - view.keys);
  const auto scales = [&](const float* at) {
    return at == nullptr ? nullptr
                         : reinterpret_cast<float*>(
                               keys + (reinterpret_cast<const std::byte*>(at) - view.keys));
  };
  StoreRows(g, shape, view.rank, w, {0, DotWidth(g), keys, scales(view.key_scales)});
  StoreRows(g, shape, view.rank, w,
            {g.head_dim_padded(), g.head_dim_padded(), values, scales(view.value_scales)});
}

// Returns a pointer into the block's slab for writing.
std::byte* Writable(const PrincipalBlock& block, const std::byte* at) {
  std::byte* base = block.slab->data();
  return base + (at - base);
}

// Stored rows of keys or values. AddRow adds n elements of one row to `out`.
struct StoredRows {
  StorageType type = StorageType::kFloat32;
  int64_t width = 0;
  const std::byte* rows = nullptr;
  const float* scales = nullptr;  // int8 only
};
void AddRow(const StoredRows& from, int64_t row, int64_t n, float* out) {
  const int64_t at = row * from.width;
  for (int64_t j = 0; j < n; ++j) {
    if (from.type == StorageType::kFloat32) {
      out[j] += reinterpret_cast<const float*>(from.rows)[at + j];
    } else if (from.type == StorageType::kBFloat16) {
      out[j] += ToFloat(BFloat16{reinterpret_cast<const uint16_t*>(from.rows)[at + j]});
    } else {
      out[j] +=
          from.scales[row] * static_cast<float>(reinterpret_cast<const int8_t*>(from.rows)[at + j]);
    }
  }
}

// Adds K' and V' side by side, then both means, to out [rank + 1, 2 * head_dim_padded].
void LoadPrincipal(const AttentionGeometry& g, const PrincipalShape& shape,
                   const PrincipalView& view, float* out) {
  const int64_t padded = g.head_dim_padded();
  const StoredRows keys{shape.principal_type, DotWidth(g), view.keys, view.key_scales};
  const StoredRows values{shape.principal_type, padded, view.values, view.value_scales};
  for (int64_t r = 0; r < view.rank + shape.n_mean_rows(); ++r) {
    float* row = out + std::min(r, view.rank) * 2 * padded;
    AddRow(keys, r, g.head_dim, row);
    AddRow(values, r, g.head_dim, row + padded);
  }
}

// Leaves rows in the workspace's tokens [ranks + 1, ld] that have the moments of two blocks
// together around their common mean, which goes to the workspace's means: both blocks' [K' V'] and
// the scaled difference of their means. `merged` holds both blocks as LoadPrincipal loads them.
struct MergeSizes {
  int64_t left_rank = 0, right_rank = 0;
  double left_tokens = 0, right_tokens = 0;
};
void JoinMoments(const MergeSizes& sizes, int64_t ld, const float* merged, CompressWorkspace& w) {
  const float* right = merged + (sizes.left_rank + 1) * ld;
  const float* left_mean = right - ld;
  const float* right_mean = right + sizes.right_rank * ld;
  const double all = sizes.left_tokens + sizes.right_tokens;
  const double weight = std::sqrt(sizes.left_tokens * sizes.right_tokens / all);
  w.tokens.resize((sizes.left_rank + sizes.right_rank + 1) * ld);
  float* at = std::copy(merged, left_mean, w.tokens.data());
  at = std::copy(right, right_mean, at);
  w.means.resize(ld);
  for (int64_t j = 0; j < ld; ++j) {
    const double a = left_mean[j], b = right_mean[j];
    at[j] = static_cast<float>(weight * (a - b));
    w.means[j] = static_cast<float>((sizes.left_tokens * a + sizes.right_tokens * b) / all);
  }
}

}  // namespace

void MergeLayer(const AttentionGeometry& g, const AtpOptions& options, const PrincipalBlock& left,
                const CompressPart& part, CompressWorkspace& w, PrincipalBlock& block) {
  const PrincipalShape& shape = block.shape;
  const bool shared = shape.shares_basis();
  const int64_t n_heads = shared ? g.n_kv_heads : 1, first_head = shared ? 0 : part.kv_head;
  const int64_t ld = 2 * g.head_dim_padded();
  int32_t& rank = block.ranks[part.layer * shape.n_bases(g) + first_head];
  const int32_t left_rank = left.ranks[part.layer * shape.n_bases(g) + first_head];
  const MergeSizes sizes{left_rank, rank, static_cast<double>(left.n_represented_tokens()),
                         static_cast<double>(left.n_blocks * shape.n_tokens)};
  const int64_t n = left_rank + rank + 1, head_size = (n + 1) * ld;
  // All heads are read before the first is written: a new rank moves them.
  w.merged.assign(n_heads * head_size, 0.0f);
  for (int64_t h = 0; h < n_heads; ++h) {
    float* at = w.merged.data() + h * head_size;
    LoadPrincipal(g, shape, left.View(g, part.layer, first_head + h), at);
    LoadPrincipal(g, shape, block.View(g, part.layer, first_head + h), at + (left_rank + 1) * ld);
  }
  rank = std::max(rank, left_rank);
  AtpOptions fixed = options;
  fixed.rank = RankFixed{rank};
  w.u_scales.assign(rank, 1.0f);
  for (int64_t h = 0; h < n_heads; ++h) {
    JoinMoments(sizes, ld, w.merged.data() + h * head_size, w);
    w.columns = w.tokens;
    FindBasis(fixed, n, ld, rank, w);
    const PrincipalView view = block.View(g, part.layer, first_head + h);
    StoreProjected(g, shape, n, w, view, Writable(block, view.keys));
  }
}

void CompressLayer(const AttentionGeometry& g, const AtpOptions& options, const BlockTokens& tokens,
                   const CompressPart& part, CompressWorkspace& w, PrincipalBlock& block) {
  const PrincipalShape& shape = block.shape;
  const bool shared = shape.shares_basis();
  const int64_t first_head = shared ? 0 : part.kv_head;
  const int64_t n_heads = shared ? g.n_kv_heads : 1;
  const int64_t n_sinks = block.n_blocks == 1 ? block.n_sinks : 0;  // else in blocks before it
  const int64_t n = shape.n_tokens - n_sinks;
  const int64_t padded = g.head_dim_padded();
  const int64_t n_cols = shape.n_basis_columns(g);

  w.columns.resize(n * n_cols);
  if (shape.basis == AtpBasis::kInput) {
    GatherInputs(g, tokens.inputs, part.layer, n_sinks, w);
  } else {
    for (int64_t h = 0; h < n_heads; ++h) {
      GatherCentered(g, tokens.pages, {part.layer, first_head + h}, n_sinks, w);
      float* at = w.columns.data() + 2 * h * g.head_dim;
      AppendScaled(w.tokens, 2 * padded, 0, g.head_dim, at, n_cols);
      AppendScaled(w.tokens, 2 * padded, padded, g.head_dim, at + g.head_dim, n_cols);
    }
  }
  const int64_t rank = FindBasis(options, n, n_cols, shape.rank, w);
  block.ranks[part.layer * shape.n_bases(g) + first_head] = static_cast<int32_t>(rank);

  w.u_scales.assign(rank, 1.0f);
  if (shape.keeps_basis) {
    std::byte* u = Writable(block, block.View(g, part.layer, first_head).u);
    if (shape.packs_basis) {
      StorePackedBasis(block, rank, w, u);
    } else {
      StoreBasis(block, rank, w, u);
    }
  }
  for (int64_t h = 0; h < n_heads; ++h) {
    if (shared) GatherCentered(g, tokens.pages, {part.layer, h}, n_sinks, w);
    const PrincipalView view = block.View(g, part.layer, first_head + h);
    StoreProjected(g, shape, n, w, view, Writable(block, view.keys));
    if (shape.keeps_tokens) {
      StoreKept(g, shape, tokens.pages, part.layer, first_head + h, w.tokens,
                Writable(block, view.kept));
    }
  }
}

void IndexLayer(const AttentionGeometry& g, const TokenIndex& index, const BlockTokens& tokens,
                const CompressPart& part, CompressWorkspace& w, PrincipalBlock& block) {
  const PrincipalView view = block.View(g, part.layer, part.kv_head);
  std::byte* to = Writable(block, view.index);
  std::byte* rest = block.shape.keeps_rest ? Writable(block, view.kept) : nullptr;
  const int64_t n_keys = g.key_dim(), ld = n_keys + g.head_dim;
  w.columns.resize(ld * kPageTokens);
  int64_t number = tokens.first_page;
  for (const PageHandle& page : tokens.pages) {
    w.tokens.resize(kPageTokens * ld);
    ReadKv(g, TileOf(g, page, part.layer, part.kv_head), {}, w.tokens.data(),
           w.tokens.data() + n_keys, ld);
    for (int64_t t = 0; t < kPageTokens; ++t) {
      for (int64_t j = 0; j < ld; ++j) w.columns[j * kPageTokens + t] = w.tokens[t * ld + j];
    }
    index.Encode({part.layer, part.kv_head, number++, w.columns.data(),
                  w.columns.data() + n_keys * kPageTokens},
                 w.code, to, rest);
    to += TokenIndex::PageBytes(g);
    if (rest != nullptr) rest += kPageTokens * block.shape.KeptTokenBytes(g);
  }
  if (!block.shape.keeps_tokens || block.shape.keeps_rest) return;
  StoreKept(g, block.shape, tokens.pages, part.layer, part.kv_head, w.tokens,
            Writable(block, view.kept));
}

}  // namespace lowkey
