#include "engine/attention/taylorshift/state.h"

#include <algorithm>
#include <cmath>

#include "engine/base/round_up.h"

namespace lowkey {
namespace {

constexpr int64_t kTargetTileFeatures = 256;

}  // namespace

TaylorShape::TaylorShape(const AttentionGeometry& g)
    : key_dim(g.key_dim()),
      n_columns(g.head_dim_padded()),
      n_features(1 + key_dim + key_dim * (key_dim + 1) / 2),
      tile_features(std::max<int64_t>(1, kTargetTileFeatures / key_dim) * key_dim),
      n_tiles(DivideUp(n_features, tile_features)) {
  int64_t n = n_features * n_columns;
  for (int64_t t = 0; t < n_tiles; ++t) n += TileStride(t);
  head_floats = (n + 15) / 16 * 16;
}

int64_t TaylorSlabBytes(const AttentionGeometry& g) {
  return g.n_layers * g.n_kv_heads * TaylorShape(g).head_floats *
         static_cast<int64_t>(sizeof(float));
}

std::optional<int64_t> TaylorSwitchTokens(const AttentionGeometry& g,
                                          const TaylorShiftOptions& options,
                                          int64_t window_tokens) {
  if (options.form == TaylorForm::kDirect) return std::nullopt;
  if (options.form == TaylorForm::kRecurrent) return window_tokens + kPageTokens;
  const auto token = static_cast<double>(g.key_dim() + g.head_dim);
  const auto state = static_cast<double>(TaylorShape(g).n_features * (g.head_dim + 1));
  const double by_operations = state * (1 + 1 / static_cast<double>(g.group())) / token;
  const double by_bytes =
      state * sizeof(float) / (token * static_cast<double>(StorageBytes(g.cache_type)));
  const auto tokens = static_cast<int64_t>(std::ceil(std::max(by_operations, by_bytes)));
  return window_tokens + PagesFor(tokens) * kPageTokens;
}

TaylorTile TileOf(const AttentionGeometry& g, const TaylorShape& shape, Slab& slab, int64_t layer,
                  int64_t kv_head, int64_t tile) {
  float* head =
      reinterpret_cast<float*>(slab.data()) + (layer * g.n_kv_heads + kv_head) * shape.head_floats;
  // Strides of all tiles but the last are equal.
  return {head + shape.TileBegin(tile) * shape.n_columns,
          head + shape.n_features * shape.n_columns + tile * shape.TileStride(0)};
}

void TaylorFolder::Reserve(const TaylorShape& shape) {
  keys_.resize(2 * shape.key_dim * kPageTokens);
  features_.resize(shape.key_dim * kPageTokens);
  ones_.assign(kPageTokens, 1.0f);
}

void TaylorFolder::Fold(const AttentionGeometry& g, const TaylorShape& shape, int64_t tile,
                        const KvTile& page, const TaylorTile& state) {
  const KernelTable& kernels = Kernels();
  const int64_t e = shape.key_dim, begin = shape.TileBegin(tile), end = shape.TileEnd(tile);
  ReadKeys(g, page, keys_.data());
  std::copy_n(keys_.begin(), e * kPageTokens, keys_.begin() + e * kPageTokens);
  // Features in runs of e: the keys, then each turn's products, then the constant 1.
  for (int64_t f = begin; f < end;) {
    int64_t n = std::min(e, shape.n_features - 1 - f);
    const float* features = features_.data();
    if (n == 0) {
      n = 1;
      features = ones_.data();
    } else if (f == 0) {
      features = keys_.data();
    } else {
      kernels.turned_products({keys_.data(), 0, features_.data(), 0, 1, e * kPageTokens, f / e - 1,
                               kPageTokens, n * kPageTokens});
      if (f == e) kernels.scale(0.5f, features_.data(), e * kPageTokens);
    }
    const int64_t panel = kernels.panel_columns;
    for (int64_t p = 0; p < shape.n_columns / panel; ++p) {
      const std::byte* values = page.values + p * panel * StorageBytes(g.cache_type);
      float* sums = state.sums + (p * (end - begin) + f - begin) * panel;
      kernels.Gemm(g.cache_type, {features, kPageTokens, values, shape.n_columns, panel, sums,
                                  panel, n, panel, kPageTokens, GemmArgs::Into::kAccumulate});
    }
    kernels.dot_rows_f32(
        {ones_.data(), kPageTokens, features, state.weights + f - begin, 0, 1, n, kPageTokens});
    f += n;
  }
}

}  // namespace lowkey
