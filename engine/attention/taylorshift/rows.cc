#include "engine/attention/taylorshift/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/round_up.h"

namespace lowkey {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();

}  // namespace

float UnitScale(const float* x, int64_t n) {
  double sums[4] = {};  // independent chains
  for (int64_t j = 0; j < n; ++j) sums[j % 4] += static_cast<double>(x[j]) * x[j];
  const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return static_cast<float>(1.0 / std::max(std::sqrt(sum), 1e-12));
}

int64_t TaylorTaskTokens(const AttentionGeometry& g) { return DivideUp(kPageTokens, g.group()); }

void TaylorRows::Reserve(const AttentionGeometry& g) {
  const TaylorShape shape(g);
  const int64_t n_rows = TaylorTaskTokens(g) * g.group();
  q_.resize(n_rows * 2 * g.key_dim());
  near_q_.resize(n_rows * g.key_dim());
  scores_.resize(n_rows * kPageTokens);
  // The first tile's stride is the longest.
  features_.resize(n_rows * shape.TileStride(0));
  out_.resize(n_rows * g.head_dim_padded());
  weights_.resize(n_rows);
  near_out_.resize(out_.size());
  near_states_.resize(n_rows);
}

void TaylorRows::Begin(const AttentionGeometry& g, const Segment& segment,
                       const TaylorRowsTask& task, const LayerRows& rows,
                       const TaylorTemperatures& temperatures) {
  geometry_ = g;
  has_window_ = task.first_near_page <= task.first_position / kPageTokens;
  const bool is_plain = segment.sequence->options.taylorshift.variant == TaylorVariant::kPlain;
  const int64_t e = g.key_dim();
  first_position_ = task.first_position;
  n_tokens_ = task.n_tokens;
  n_rows_ = n_tokens_ * g.group();
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t step_row = segment.first_row + PositionOf(r) - segment.first_position;
    const int64_t head = task.kv_head * g.group() + r % g.group();
    const float* from = rows.q + step_row * rows.ld_qkv + head * e;
    const float scale = is_plain ? 1.0f / std::sqrt(static_cast<float>(e)) : UnitScale(from, e);
    const float far = is_plain ? scale : temperatures.far[head] * scale;
    float* q = q_.data() + r * 2 * e;
    for (int64_t j = 0; j < e; ++j) q[j] = q[e + j] = from[j] * far;
    if (!has_window_) continue;
    const float near = is_plain ? scale : temperatures.near[head] * scale;
    for (int64_t j = 0; j < e; ++j) NearQuery(r)[j] = from[j] * near;
  }
  scales_outputs_ = !is_plain && !has_window_;
  std::fill_n(out_.begin(), n_rows_ * g.head_dim_padded(), 0.0f);
  std::fill_n(weights_.begin(), n_rows_, 0.0f);
  std::fill_n(near_out_.begin(), n_rows_ * g.head_dim_padded(), 0.0f);
  std::fill_n(near_states_.begin(), n_rows_, SoftmaxState{kHidden, 0});
}

int64_t TaylorRows::VisibleTokens(int64_t page) const {
  return std::min(first_position_ + n_tokens_ - page * kPageTokens, kPageTokens);
}

void TaylorRows::Score(const float* queries, int64_t ld, const KvTile& tile, int64_t n_visible) {
  const int64_t panel = Kernels().panel_columns;
  const int64_t n_cols = RoundUp(n_visible, panel);
  Kernels().Gemm(geometry_.cache_type, {queries, ld, tile.keys, kPageTokens, panel, scores_.data(),
                                        kPageTokens, n_rows_, n_cols, geometry_.key_dim()});
}

// Tokens that no row sees may hold another sequence's data: 0 times NaN is NaN.
void TaylorRows::AddValues(const KvTile& tile, int64_t n_visible, std::vector<float>& out) const {
  const int64_t padded = geometry_.head_dim_padded();
  Kernels().Gemm(geometry_.cache_type,
                 {scores_.data(), kPageTokens, tile.values, padded, Kernels().panel_columns,
                  out.data(), padded, n_rows_, padded, n_visible, GemmArgs::Into::kAccumulate});
}

void TaylorRows::AddPage(const KvTile& tile, int64_t page) {
  const int64_t n_visible = VisibleTokens(page);
  Score(q_.data(), 2 * geometry_.key_dim(), tile, n_visible);
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t n_seen = std::min(PositionOf(r) + 1 - page * kPageTokens, kPageTokens);
    weights_[r] += Kernels().taylor_weights(scores_.data() + r * kPageTokens, n_seen, kPageTokens);
  }
  AddValues(tile, n_visible, out_);
}

void TaylorRows::AddNearPage(const KvTile& tile, int64_t page) {
  const KernelTable& kernels = Kernels();
  const int64_t n_visible = VisibleTokens(page), padded = geometry_.head_dim_padded();
  Score(near_q_.data(), geometry_.key_dim(), tile, n_visible);
  for (int64_t r = 0; r < n_rows_; ++r) {
    float* scores = scores_.data() + r * kPageTokens;
    const int64_t n_seen = std::min(PositionOf(r) + 1 - page * kPageTokens, kPageTokens);
    std::fill(scores + n_seen, scores + kPageTokens, kHidden);
    const SoftmaxUpdate update = kernels.softmax_update(scores, kPageTokens, &near_states_[r]);
    if (update.factor != 1.0f) {
      kernels.scale(update.factor, near_out_.data() + r * padded, padded);
    }
  }
  AddValues(tile, n_visible, near_out_);
}

void TaylorRows::WriteFeatures(const TaylorShape& shape, int64_t tile) {
  const int64_t e = shape.key_dim, begin = shape.TileBegin(tile), end = shape.TileEnd(tile);
  const int64_t stride = shape.TileStride(tile);
  const int64_t n_linear = tile == 0 ? e : 0;
  const int64_t n_products = std::min(end, shape.n_features - 1) - begin - n_linear;
  Kernels().turned_products({q_.data(), 2 * e, features_.data() + n_linear, stride, n_rows_, e,
                             std::max<int64_t>(0, begin / e - 1), 1, n_products});
  for (int64_t r = 0; r < n_rows_; ++r) {
    float* row = features_.data() + r * stride;
    std::copy_n(q_.data() + r * 2 * e, n_linear, row);
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

// exp(-max) would overflow where all near scores are low: the common scale is that of the larger of
// the near weights and 1.
float TaylorRows::JoinWindow(int64_t r, int64_t n_far_tokens) {
  const KernelTable& kernels = Kernels();
  const int64_t padded = geometry_.head_dim_padded();
  float* far = out_.data() + r * padded;
  float* near = near_out_.data() + r * padded;
  const SoftmaxState& state = near_states_[r];
  const float top = n_far_tokens == 0 ? state.max : std::max(state.max, 0.0f);
  const float near_factor = std::exp(state.max - top);
  const float far_factor = n_far_tokens == 0 ? 0.0f : std::exp(-top);
  kernels.scale(far_factor, far, padded);
  kernels.scale(near_factor, near, padded);
  kernels.add(near, far, padded);
  const float far_weight = std::max(weights_[r], 0.5f * static_cast<float>(n_far_tokens));
  return far_weight * far_factor + state.sum * near_factor;
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
    float scale = 1.0f / (has_window_ ? JoinWindow(r, task.first_near_page * kPageTokens)
                                      : std::max(weights_[r], 0.5f * n_seen));
    if (scales_outputs_) {
      scale *= std::sqrt(n_seen / static_cast<float>(g.head_dim));
    }
    for (int64_t j = 0; j < g.head_dim; ++j) out[j] = sums[j] * scale;
  }
}

}  // namespace lowkey
