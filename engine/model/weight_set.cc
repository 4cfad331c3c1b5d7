#include "engine/model/weight_set.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/model/rope.h"

namespace lowkey {
namespace {

// Rows per task of the cheap row-wise operations: one row's work is a few microseconds.
constexpr int64_t kRowsPerTask = 8;

}  // namespace

std::vector<float> Floats(std::initializer_list<const TensorView*> parts) {
  std::vector<float> out;
  for (const TensorView* part : parts) {
    if (part->data == nullptr) continue;
    const size_t at = out.size();
    out.resize(at + part->size());
    LoadFloats(*part, 0, part->size(), out.data() + at);
  }
  return out;
}

void ForRows(ThreadPool& pool, int64_t n_rows, absl::FunctionRef<void(int64_t)> body) {
  pool.ParallelFor((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(n_rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) body(row);
  });
}

AttentionGeometry GeometryOf(const ModelConfig& c, StorageType cache_type) {
  AttentionGeometry g{c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, std::nullopt, cache_type};
  if (c.sliding_window.has_value()) g.sliding_window = *c.sliding_window;
  if (c.score_dim.has_value()) g.score_dim = *c.score_dim;
  g.hidden_dim = c.hidden_dim;
  return g;
}

std::vector<TensorView> WeightSetSizes::CountLayer(const LayerTensors& t) {
  std::vector<TensorView> parts;
  for (const auto& [tensor, dim] : {std::pair{&t.q_proj, &q_dim_}, std::pair{&t.k_proj, &k_dim_},
                                    std::pair{&t.v_proj, &v_dim_}}) {
    *dim = tensor->data == nullptr ? 0 : tensor->shape[0];
    if (tensor->data != nullptr) parts.push_back(*tensor);
  }
  work_per_row_ += static_cast<double>(config_.hidden_dim * (qkv_dim() + out_dim()));
  slices_keys_ = q_dim_ > 0 && k_dim_ == 0;
  slices_values_ = q_dim_ > 0 && v_dim_ == 0;
  if (slices_keys_) k_dim_ = int64_t{config_.n_kv_heads} * config_.key_dim();
  if (slices_values_) v_dim_ = int64_t{config_.n_kv_heads} * config_.head_dim;
  return parts;
}

LayerRows WeightSetSizes::RowsOf(int64_t layer, const float* x, const float* qkv, int64_t ld_qkv,
                                 float* out) const {
  return {.layer = layer,
          .x = x,
          .ld_x = config_.hidden_dim,
          .q = q_dim_ > 0 ? qkv : nullptr,
          .k = k_dim_ > 0 ? qkv + q_dim_ : nullptr,
          .v = v_dim_ > 0 ? qkv + q_dim_ + k_dim_ : nullptr,
          .ld_qkv = ld_qkv,
          .out = out,
          .ld_out = out_dim()};
}

WeightSet::WeightSet(const ModelConfig& config, ThreadPool& pool)
    : WeightSetSizes(config), pool_(pool), inverse_frequencies_(RopeInverseFrequencies(config)) {}

absl::Status WeightSet::AddLayer(const LayerTensors& t, PackFn pack) {
  Layer& layer = layers_.emplace_back();
  layer.q_norm = Floats({&t.q_norm});
  layer.k_norm = Floats({&t.k_norm});
  layer.qkv_bias = Floats({&t.q_bias, &t.k_bias, &t.v_bias});
  layer.o_bias = Floats({&t.o_bias});
  if (const std::vector<TensorView> parts = CountLayer(t); !parts.empty()) {
    LK_ASSIGN_OR_RETURN(layer.qkv, pack(parts));
    most_qkv_padded_ = std::max(most_qkv_padded_, layer.qkv.n_out_padded());
  }
  LK_ASSIGN_OR_RETURN(layer.o, pack({&t.o_proj, 1}));
  return absl::OkStatus();
}

void WeightSet::ReserveRows(int64_t max_rows) {
  qkv_.resize(max_rows * ld_qkv());
  attended_.resize(max_rows * out_dim());
  cos_.resize(max_rows * (config_.key_dim() / 2));
  sin_.resize(max_rows * (config_.key_dim() / 2));
}

void WeightSet::Begin(absl::Span<const int64_t> positions) {
  n_rows_ = static_cast<int64_t>(positions.size());
  const size_t half = inverse_frequencies_.size();
  for (size_t i = 0; i < positions.size(); ++i) {
    for (size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(positions[i]) * inverse_frequencies_[j];
      cos_[i * half + j] = static_cast<float>(std::cos(angle));
      sin_[i * half + j] = static_cast<float>(std::sin(angle));
    }
  }
}

void WeightSet::NormHeads(const Layer& layer, float* row) const {
  for (int64_t at = 0; at < q_dim_ + k_dim_; at += config_.key_dim()) {
    const std::vector<float>& weight = at < q_dim_ ? layer.q_norm : layer.k_norm;
    Kernels().rms_norm(row + at, weight.data(), config_.rms_norm_eps, row + at, config_.key_dim());
  }
}

void WeightSet::TakeSlices(const float* x, float* row) const {
  if (slices_keys_) std::copy_n(x, k_dim_, row + q_dim_);
  if (slices_values_) std::copy_n(x, v_dim_, row + q_dim_ + k_dim_);
}

void WeightSet::Rotate(const Layer& layer, const float* x) {
  const int64_t half = config_.key_dim() / 2;
  ForRows(pool_, n_rows_, [&](int64_t i) {
    float* row = qkv_.data() + i * ld_qkv();
    if (!layer.qkv_bias.empty()) {
      Kernels().add(layer.qkv_bias.data(), row, static_cast<int64_t>(layer.qkv_bias.size()));
    }
    if (config_.qk_norm) NormHeads(layer, row);
    TakeSlices(x + i * config_.hidden_dim, row);
    // Keys follow queries in a row: one call rotates both.
    Kernels().rope(row, cos_.data() + i * half, sin_.data() + i * half,
                   (q_dim_ + k_dim_) / config_.key_dim(), config_.key_dim());
  });
}

LayerRows WeightSet::Project(int64_t layer_index, const float* x) {
  const Layer& layer = layers_[layer_index];
  if (layer.qkv.n_out() > 0) {
    Linear(layer.qkv, {x, config_.hidden_dim}, n_rows_, qkv_.data(), ld_qkv(), pool_);
    Rotate(layer, x);
  }
  return RowsOf(layer_index, x, qkv_.data(), ld_qkv(), attended_.data());
}

void WeightSet::Output(int64_t layer_index, float* residual, float* scratch) {
  const Layer& layer = layers_[layer_index];
  AddLinear(layer.o, layer.o_bias, {attended_.data(), out_dim()}, n_rows_, residual,
            config_.hidden_dim, scratch, pool_);
}

int64_t WeightSet::weight_bytes() const {
  int64_t total = 0;
  for (const Layer& l : layers_) total += l.qkv.size_bytes() + l.o.size_bytes();
  return total;
}

}  // namespace lowkey
