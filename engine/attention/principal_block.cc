#include "engine/attention/principal_block.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/paged_kv.h"
#include "engine/base/dtype.h"

namespace lowkey {
namespace {

void StoreElement(std::byte* p, StorageType type, int64_t i, float x) {
  if (type == StorageType::kFloat32) {
    reinterpret_cast<float*>(p)[i] = x;
  } else {
    reinterpret_cast<uint16_t*>(p)[i] = ToBFloat16(x).bits;
  }
}

// One KV head's keys and values of the block's tokens: keys in columns [0, d), values in [padded,
// padded + d), means taken off. Token i is row i; `means` gets both means.
void GatherCentred(const AttentionGeometry& g, absl::Span<const PageHandle> pages, int64_t layer,
                   int64_t kv_head, int64_t n_sinks, std::vector<float>& tokens,
                   std::vector<float>& means) {
  const int64_t padded = g.head_dim_padded();
  const int64_t ld = 2 * padded;
  const int64_t n = static_cast<int64_t>(pages.size()) * kPageTokens - n_sinks;
  tokens.assign(n * ld, 0.0f);
  int64_t row = 0;
  for (size_t p = 0; p < pages.size(); ++p) {
    const int64_t begin = p == 0 ? n_sinks : 0;
    float* out = tokens.data() + row * ld;
    ReadKv(g, TileOf(g, pages[p], layer, kv_head), begin, kPageTokens, out, out + padded, ld);
    row += kPageTokens - begin;
  }
  means.assign(ld, 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < ld; ++j) means[j] += tokens[i * ld + j];
  }
  for (float& m : means) m /= static_cast<float>(n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < ld; ++j) tokens[i * ld + j] -= means[j];
  }
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

// U [n, rank] of workspace.columns [n, n_cols] into workspace.u_transposed [rank, n], surplus rows
// zero.
void FindBasis(int64_t n, int64_t n_cols, int64_t rank, CompressWorkspace& w) {
  const int64_t r = std::min(rank, n);
  w.u.assign(n * r, 0.0f);
  PrincipalBasis({w.columns.data(), n, n_cols, n_cols}, r, w.basis, w.u.data());
  w.u_transposed.assign(rank * n, 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < r; ++j) w.u_transposed[j * n + i] = w.u[i * r + j];
  }
}

void StoreBasis(const AttentionGeometry& g, const PrincipalBlock& block, const CompressWorkspace& w,
                std::byte* out) {
  const int64_t n = block.shape.n_tokens - block.n_sinks;
  for (int64_t t = 0; t < block.shape.n_tokens; ++t) {
    const int64_t tile = t / kPageTokens, slot = t % kPageTokens;
    for (int64_t j = 0; j < block.shape.rank; ++j) {
      const float x = t < block.n_sinks ? 0.0f : w.u_transposed[j * n + t - block.n_sinks];
      StoreElement(out, g.cache_type, (tile * block.shape.rank + j) * kPageTokens + slot, x);
    }
  }
}

// K' = U^T (K - k_mean), V' = U^T (V - v_mean) of the head whose centred tokens and means the
// workspace holds.
void StoreProjected(const AttentionGeometry& g, const PrincipalShape& shape, int64_t n,
                    CompressWorkspace& w, std::byte* keys, std::byte* values) {
  const int64_t padded = g.head_dim_padded();
  const int64_t ld = 2 * padded;
  w.projected.resize(shape.rank * ld);
  Kernels().Gemm(StorageType::kFloat32,
                 {w.u_transposed.data(), n, w.tokens.data(), ld, Kernels().panel_columns,
                  w.projected.data(), ld, shape.rank, ld, n});
  for (int64_t r = 0; r <= shape.rank; ++r) {
    const float* row = r == shape.rank ? w.means.data() : w.projected.data() + r * ld;
    for (int64_t j = 0; j < g.head_dim; ++j) {
      StoreElement(keys, g.cache_type, j * shape.rank_padded + r, row[j]);
      StoreElement(values, g.cache_type, r * padded + j, row[padded + j]);
    }
  }
}

}  // namespace

int64_t PrincipalShape::UBytes(const AttentionGeometry& g) const {
  return n_tokens * rank * StorageBytes(g.cache_type);
}

int64_t PrincipalShape::KeyBytes(const AttentionGeometry& g) const {
  return g.head_dim * rank_padded * StorageBytes(g.cache_type);
}

int64_t PrincipalShape::ValueBytes(const AttentionGeometry& g) const {
  return (rank + 1) * g.head_dim_padded() * StorageBytes(g.cache_type);
}

int64_t PrincipalShape::LayerBytes(const AttentionGeometry& g) const {
  return n_bases(g) * UBytes(g) + g.n_kv_heads * (KeyBytes(g) + ValueBytes(g));
}

PrincipalShape ShapeOf(const AttentionGeometry& g, const AtpOptions& options) {
  PrincipalShape shape;
  shape.basis = options.basis;
  shape.n_tokens = options.block_tokens;
  const int64_t heads = options.basis == AtpBasis::kLayer ? g.n_kv_heads : 1;
  const int64_t full = std::min<int64_t>(options.block_tokens, 2 * heads * g.head_dim);
  if (const auto* fraction = std::get_if<RankFraction>(&options.rank)) {
    shape.rank = std::llround(fraction->fraction * static_cast<double>(full));
  } else {
    shape.rank = std::get<RankFixed>(options.rank).rank;
  }
  shape.rank = std::clamp<int64_t>(shape.rank, 1, full);
  const int64_t panel = Kernels().panel_columns;
  shape.rank_padded = (shape.rank + 1 + panel - 1) / panel * panel;
  return shape;
}

PrincipalView PrincipalBlock::View(const AttentionGeometry& g, int64_t layer,
                                   int64_t kv_head) const {
  const std::byte* base = slab->data() + layer * shape.LayerBytes(g);
  const int64_t u_index = shape.basis == AtpBasis::kLayer ? 0 : kv_head;
  const int64_t key_bytes = shape.KeyBytes(g);
  const std::byte* head =
      base + shape.n_bases(g) * shape.UBytes(g) + kv_head * (key_bytes + shape.ValueBytes(g));
  return {base + u_index * shape.UBytes(g), head, head + key_bytes};
}

void CompressLayer(const AttentionGeometry& g, absl::Span<const PageHandle> pages, int64_t layer,
                   int64_t kv_head, CompressWorkspace& w, PrincipalBlock& block) {
  const PrincipalShape& shape = block.shape;
  const bool shared = shape.basis == AtpBasis::kLayer;
  const int64_t first_head = shared ? 0 : kv_head;
  const int64_t n_heads = shared ? g.n_kv_heads : 1;
  const int64_t n = shape.n_tokens - block.n_sinks;
  const int64_t padded = g.head_dim_padded();
  const int64_t n_cols = 2 * n_heads * g.head_dim;

  w.columns.resize(n * n_cols);
  for (int64_t h = 0; h < n_heads; ++h) {
    GatherCentred(g, pages, layer, first_head + h, block.n_sinks, w.tokens, w.means);
    float* at = w.columns.data() + 2 * h * g.head_dim;
    AppendScaled(w.tokens, 2 * padded, 0, g.head_dim, at, n_cols);
    AppendScaled(w.tokens, 2 * padded, padded, g.head_dim, at + g.head_dim, n_cols);
  }
  FindBasis(n, n_cols, shape.rank, w);

  std::byte* base = block.slab->data();
  const auto writable = [base, &block](const std::byte* p) {
    return base + (p - block.slab->data());
  };
  StoreBasis(g, block, w, writable(block.View(g, layer, first_head).u));
  for (int64_t h = 0; h < n_heads; ++h) {
    if (shared) GatherCentred(g, pages, layer, h, block.n_sinks, w.tokens, w.means);
    const PrincipalView view = block.View(g, layer, first_head + h);
    StoreProjected(g, shape, n, w, writable(view.keys), writable(view.values));
  }
}

}  // namespace lowkey
