#include "engine/model/device/device_weight_set.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"
#include "engine/kernels/device/weight.h"
#include "engine/model/rope.h"

namespace lowkey {

absl::Status DeviceWeightSet::AddLayer(const LayerTensors& t, ThreadPool& pool) {
  Layer& layer = layers_.emplace_back();
  LK_ASSIGN_OR_RETURN(layer.q_norm, Uploaded(Floats({&t.q_norm}), device_));
  LK_ASSIGN_OR_RETURN(layer.k_norm, Uploaded(Floats({&t.k_norm}), device_));
  LK_ASSIGN_OR_RETURN(layer.qkv_bias, Uploaded(Floats({&t.q_bias, &t.k_bias, &t.v_bias}), device_));
  LK_ASSIGN_OR_RETURN(layer.o_bias, Uploaded(Floats({&t.o_bias}), device_));
  if (const std::vector<TensorView> parts = CountLayer(t); !parts.empty()) {
    LK_ASSIGN_OR_RETURN(layer.qkv, MakeDeviceWeight(parts, type_, pool, device_));
  }
  LK_ASSIGN_OR_RETURN(layer.o, MakeDeviceWeight({&t.o_proj, 1}, type_, pool, device_));
  return absl::OkStatus();
}

absl::Status DeviceWeightSet::ReserveRows(int64_t max_rows) {
  const auto reserve = [&](Buffer& buffer, int64_t n_bytes) -> absl::Status {
    LK_ASSIGN_OR_RETURN(buffer,
                        Buffer::Allocate(static_cast<size_t>(max_rows * n_bytes), &device_));
    return absl::OkStatus();
  };
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  LK_RETURN_IF_ERROR(reserve(qkv_, qkv_dim() * kFloat));
  LK_RETURN_IF_ERROR(reserve(attended_, out_dim() * kFloat));
  LK_RETURN_IF_ERROR(reserve(cos_, config_.key_dim() / 2 * kFloat));
  LK_RETURN_IF_ERROR(reserve(sin_, config_.key_dim() / 2 * kFloat));
  if (type_ != StorageType::kFloat32) {
    const int64_t row_bytes = StorageBytes(RowTypeOf(type_));
    LK_RETURN_IF_ERROR(reserve(rounded_qkv_, qkv_dim() * row_bytes));
    LK_RETURN_IF_ERROR(reserve(rounded_, out_dim() * row_bytes));
  }
  LK_ASSIGN_OR_RETURN(inverse_frequencies_, Uploaded(RopeInverseFrequencies(config_), device_));
  return absl::OkStatus();
}

void DeviceWeightSet::Begin(const int32_t* positions, int64_t n_rows,
                            absl::Span<AttentionMechanism* const> mechanisms) {
  n_rows_ = n_rows;
  const bool has_own_kv = !has_slices() && k_dim_ > 0 && k_dim_ == v_dim_;
  pages_ = has_own_kv && mechanisms.size() == 1 ? mechanisms[0]->PageWrites() : nullptr;
  rounds_results_ = type_ != StorageType::kFloat32 &&
                    std::all_of(mechanisms.begin(), mechanisms.end(),
                                [](const auto* m) { return m->RoundsResults(); });
  device_.kernels().angles(
      device_, {positions, inverse_frequencies_.as<double>(), config_.key_dim() / 2, n_rows,
                cos_.as<float>(), sin_.as<float>()});
}

LayerRows DeviceWeightSet::Project(int64_t layer_index, const void* x, const float* x_floats) {
  const Layer& layer = layers_[layer_index];
  if (layer.qkv != nullptr) {
    device_.Multiply({.weight = layer.qkv.get(),
                      .x = x,
                      .ld_x = config_.hidden_dim,
                      .n_rows = n_rows_,
                      .y = qkv_.as<float>(),
                      .ld_y = qkv_dim(),
                      .bias = layer.qkv_bias.as<float>(),
                      .rounded = rounded_qkv_.as<uint16_t>()});
    RotateArgs rotate{.qkv = qkv_.as<float>(),
                      .rounded = rounded_qkv_.as<uint16_t>(),
                      .ld = qkv_dim(),
                      .n_rows = n_rows_,
                      .n_heads = q_dim_ / config_.key_dim(),
                      .n_kv_heads = k_dim_ / config_.key_dim(),
                      .head_dim = config_.key_dim(),
                      .n_values = v_dim_};
    rotate.q_norm = layer.q_norm.as<float>();
    rotate.k_norm = layer.k_norm.as<float>();
    rotate.eps = config_.rms_norm_eps;
    rotate.cos = cos_.as<float>();
    rotate.sin = sin_.as<float>();
    if (slices_keys_) rotate.key_slices = x_floats;
    if (slices_values_) rotate.value_slices = x_floats;
    rotate.ld_slices = config_.hidden_dim;
    if (pages_ != nullptr) rotate.pages = *pages_;
    rotate.layer = layer_index;
    device_.kernels().rotate(device_, rotate);
  }
  LayerRows rows =
      RowsOf(layer_index, x_floats, qkv_.as<float>(), qkv_dim(), attended_.as<float>());
  if (pages_ != nullptr) rows.k = rows.v = nullptr;
  if (rounds_results_) rows.rounded = rounded_.as<uint16_t>();
  return rows;
}

void DeviceWeightSet::Output(int64_t layer_index, float* residual) {
  const Layer& layer = layers_[layer_index];
  if (type_ != StorageType::kFloat32 && !rounds_results_) {
    device_.kernels().round(
        device_, {attended_.as<float>(), n_rows_ * out_dim(), rounded_.data(), RowTypeOf(type_)});
  }
  const void* attended = type_ == StorageType::kFloat32 ? attended_.data() : rounded_.data();
  device_.Multiply({layer.o.get(), attended, out_dim(), n_rows_, residual, config_.hidden_dim,
                    layer.o_bias.as<float>(), GemmArgs::Into::kAccumulate});
}

int64_t DeviceWeightSet::weight_bytes() const {
  int64_t total = 0;
  for (const Layer& l : layers_) {
    total += l.o->size_bytes() + (l.qkv == nullptr ? 0 : l.qkv->size_bytes());
  }
  return total;
}

}  // namespace lowkey
