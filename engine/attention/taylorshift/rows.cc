#include "engine/attention/taylorshift/rows.h"

#include <algorithm>
#include <cmath>

namespace lowkey {

float UnitScale(const float* x, int64_t n) {
  double sums[4] = {};  // independent chains
  for (int64_t j = 0; j < n; ++j) sums[j % 4] += static_cast<double>(x[j]) * x[j];
  const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return static_cast<float>(1.0 / std::max(std::sqrt(sum), 1e-12));
}

int64_t TaylorTaskTokens(const AttentionGeometry& g) {
  return (kPageTokens + g.group() - 1) / g.group();
}

void TaylorRows::Reserve(const AttentionGeometry& g) {
  const TaylorShape shape(g);
  const int64_t n_rows = TaylorTaskTokens(g) * g.group();
  q_.resize(n_rows * 2 * g.head_dim);
  scores_.resize(n_rows * kPageTokens);
  // The first tile's stride is the longest.
  features_.resize(n_rows * shape.TileStride(0));
  out_.resize(n_rows * g.head_dim_padded());
  weights_.resize(n_rows);
}

void TaylorRows::Begin(const AttentionGeometry& g, const Segment& segment,
                       const TaylorRowsTask& task, const LayerRows& rows,
                       absl::Span<const float> tau) {
  geometry_ = g;
  variant_ = segment.sequence->options.taylorshift.variant;
  first_position_ = task.first_position;
  n_tokens_ = task.n_tokens;
  n_rows_ = n_tokens_ * g.group();
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t step_row = segment.first_row + PositionOf(r) - segment.first_position;
    const int64_t head = task.kv_head * g.group() + r % g.group();
    const float* from = rows.q + step_row * rows.ld_qkv + head * g.head_dim;
    const float scale = variant_ == TaylorVariant::kPlain
                            ? 1.0f / std::sqrt(static_cast<float>(g.head_dim))
                            : tau[head] * UnitScale(from, g.head_dim);
    float* q = q_.data() + r * 2 * g.head_dim;
    for (int64_t j = 0; j < g.head_dim; ++j) q[j] = q[g.head_dim + j] = from[j] * scale;
  }
  std::fill_n(out_.begin(), n_rows_ * g.head_dim_padded(), 0.0f);
  std::fill_n(weights_.begin(), n_rows_, 0.0f);
}

void TaylorRows::AddPage(const KvTile& tile, int64_t page) {
  const AttentionGeometry& g = geometry_;
  const KernelTable& kernels = Kernels();
  const int64_t panel = kernels.panel_columns, padded = g.head_dim_padded();
  const int64_t first = page * kPageTokens;
  const int64_t n_visible = std::min(first_position_ + n_tokens_ - first, kPageTokens);

  const int64_t n_cols = (n_visible + panel - 1) / panel * panel;
  kernels.Gemm(g.cache_type, {q_.data(), 2 * g.head_dim, tile.keys, kPageTokens, panel,
                              scores_.data(), kPageTokens, n_rows_, n_cols, g.head_dim});
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t n_seen = std::min(PositionOf(r) + 1 - first, kPageTokens);
    weights_[r] += kernels.taylor_weights(scores_.data() + r * kPageTokens, n_seen, kPageTokens);
  }

  // Tokens that no row sees may hold another sequence's data: 0 times NaN is NaN.
  kernels.Gemm(g.cache_type, {scores_.data(), kPageTokens, tile.values, padded, panel, out_.data(),
                              padded, n_rows_, padded, n_visible, GemmArgs::Into::kAccumulate});
}

void TaylorRows::WriteFeatures(const TaylorShape& shape, int64_t tile) {
  const int64_t d = shape.head_dim, begin = shape.TileBegin(tile), end = shape.TileEnd(tile);
  const int64_t stride = shape.TileStride(tile);
  const int64_t n_linear = tile == 0 ? d : 0;
  const int64_t n_products = std::min(end, shape.n_features - 1) - begin - n_linear;
  Kernels().turned_products({q_.data(), 2 * d, features_.data() + n_linear, stride, n_rows_, d,
                             std::max<int64_t>(0, begin / d - 1), 1, n_products});
  for (int64_t r = 0; r < n_rows_; ++r) {
    float* row = features_.data() + r * stride;
    std::copy_n(q_.data() + r * 2 * d, n_linear, row);
    if (end == shape.n_features) row[end - begin - 1] = 1.0f;
    std::fill(row + end - begin, row + stride, 0.0f);
  }
}

void TaylorRows::AddState(const TaylorShape& shape, int64_t tile, const TaylorTile& state) {
  const KernelTable& kernels = Kernels();
  WriteFeatures(shape, tile);
  const int64_t n = shape.TileEnd(tile) - shape.TileBegin(tile), panel = kernels.panel_columns;
  kernels.Gemm(StorageType::kFloat32,
               {features_.data(), shape.TileStride(tile), state.sums, panel, n * panel, out_.data(),
                shape.n_columns, n_rows_, shape.n_columns, n, GemmArgs::Into::kAccumulate});
  kernels.dot_rows_f32(
      {state.weights, 0, features_.data(), weights_.data(), 0, 1, n_rows_, shape.TileStride(tile)});
}

void TaylorRows::Finish(const Segment& segment, const TaylorRowsTask& task, const LayerRows& rows) {
  const AttentionGeometry& g = geometry_;
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t position = PositionOf(r);
    const int64_t step_row = segment.first_row + position - segment.first_position;
    const int64_t head = task.kv_head * g.group() + r % g.group();
    float* out = rows.out + step_row * rows.ld_out + head * g.head_dim;
    const float* sums = out_.data() + r * g.head_dim_padded();
    const auto n_seen = static_cast<float>(position + 1);
    // No weight is below 1/2; rounding of the state's sums can give less where scores are large.
    float scale = 1.0f / std::max(weights_[r], 0.5f * n_seen);
    if (variant_ == TaylorVariant::kNormalized) {
      scale *= std::sqrt(n_seen / static_cast<float>(g.head_dim));
    }
    for (int64_t j = 0; j < g.head_dim; ++j) out[j] = sums[j] * scale;
  }
}

}  // namespace lowkey
