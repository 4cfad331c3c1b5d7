#include "engine/model/device/device_weight_set.h"

#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"
#include "engine/kernels/device/weight.h"
#include "engine/model/rope.h"
#include "engine/model/weight_set.h"

namespace lowkey {
namespace {

const float* OrNone(const Buffer& b) { return b.size_bytes() == 0 ? nullptr : b.as<float>(); }

int64_t RowsOf(const TensorView& t) { return t.data == nullptr ? 0 : t.shape[0]; }

}  // namespace

absl::StatusOr<Buffer> UploadedFloats(absl::Span<const float> x, Device& device) {
  LK_ASSIGN_OR_RETURN(Buffer out, Buffer::Allocate(x.size() * sizeof(float), &device));
  if (!x.empty()) {
    device.Upload(x.data(), out.data(), static_cast<int64_t>(x.size() * sizeof(float)));
  }
  return out;
}

absl::Status DeviceWeightSet::AddLayer(const LayerTensors& t, ThreadPool& pool) {
  q_dim_ = RowsOf(t.q_proj);
  k_dim_ = RowsOf(t.k_proj);
  v_dim_ = RowsOf(t.v_proj);
  Layer& layer = layers_.emplace_back();
  LK_ASSIGN_OR_RETURN(layer.q_norm, UploadedFloats(Floats({&t.q_norm}), device_));
  LK_ASSIGN_OR_RETURN(layer.k_norm, UploadedFloats(Floats({&t.k_norm}), device_));
  LK_ASSIGN_OR_RETURN(layer.qkv_bias,
                      UploadedFloats(Floats({&t.q_bias, &t.k_bias, &t.v_bias}), device_));
  LK_ASSIGN_OR_RETURN(layer.o_bias, UploadedFloats(Floats({&t.o_bias}), device_));
  std::vector<TensorView> parts;
  for (const TensorView* part : {&t.q_proj, &t.k_proj, &t.v_proj}) {
    if (part->data != nullptr) parts.push_back(*part);
  }
  if (!parts.empty()) {
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
  LK_RETURN_IF_ERROR(reserve(cos_, config_.head_dim / 2 * kFloat));
  LK_RETURN_IF_ERROR(reserve(sin_, config_.head_dim / 2 * kFloat));
  if (type_ != StorageType::kFloat32) {
    LK_RETURN_IF_ERROR(reserve(rounded_, out_dim() * StorageBytes(RowTypeOf(type_))));
  }
  const std::vector<double> frequencies = RopeInverseFrequencies(config_);
  const size_t n_bytes = frequencies.size() * sizeof(double);
  LK_ASSIGN_OR_RETURN(inverse_frequencies_, Buffer::Allocate(n_bytes, &device_));
  device_.Upload(frequencies.data(), inverse_frequencies_.data(), static_cast<int64_t>(n_bytes));
  return absl::OkStatus();
}

void DeviceWeightSet::Begin(const int32_t* positions, int64_t n_rows) {
  n_rows_ = n_rows;
  device_.kernels().angles(
      device_, {positions, inverse_frequencies_.as<double>(), config_.head_dim / 2, n_rows,
                cos_.as<float>(), sin_.as<float>()});
}

LayerRows DeviceWeightSet::Project(int64_t layer_index, const void* x, const float* x_floats) {
  const Layer& layer = layers_[layer_index];
  LayerRows rows;
  rows.layer = layer_index;
  rows.x = x_floats;
  rows.ld_x = config_.hidden_dim;
  rows.ld_qkv = qkv_dim();
  rows.out = attended_.as<float>();
  rows.ld_out = out_dim();
  if (layer.qkv == nullptr) return rows;
  auto* qkv = qkv_.as<float>();
  device_.Multiply(
      {layer.qkv.get(), x, config_.hidden_dim, n_rows_, qkv, qkv_dim(), OrNone(layer.qkv_bias)});
  RotateArgs rotate{qkv,
                    qkv_dim(),
                    n_rows_,
                    q_dim_ / config_.head_dim,
                    k_dim_ / config_.head_dim,
                    config_.head_dim};
  rotate.q_norm = OrNone(layer.q_norm);
  rotate.k_norm = OrNone(layer.k_norm);
  rotate.eps = config_.rms_norm_eps;
  rotate.cos = cos_.as<float>();
  rotate.sin = sin_.as<float>();
  device_.kernels().rotate(device_, rotate);
  if (q_dim_ > 0) rows.q = qkv;
  if (k_dim_ > 0) rows.k = qkv + q_dim_;
  if (v_dim_ > 0) rows.v = qkv + q_dim_ + k_dim_;
  return rows;
}

void DeviceWeightSet::Output(int64_t layer_index, float* residual) {
  const Layer& layer = layers_[layer_index];
  const void* attended = attended_.data();
  if (type_ != StorageType::kFloat32) {
    device_.kernels().round(
        device_, {attended_.as<float>(), n_rows_ * out_dim(), rounded_.data(), RowTypeOf(type_)});
    attended = rounded_.data();
  }
  device_.Multiply({layer.o.get(), attended, out_dim(), n_rows_, residual, config_.hidden_dim,
                    OrNone(layer.o_bias), GemmArgs::Into::kAccumulate});
}

int64_t DeviceWeightSet::weight_bytes() const {
  int64_t total = 0;
  for (const Layer& l : layers_) {
    total += l.o->size_bytes() + (l.qkv == nullptr ? 0 : l.qkv->size_bytes());
  }
  return total;
}

double DeviceWeightSet::work_per_row() const {
  double total = 0;
  for (const Layer& l : layers_) {
    for (const DeviceWeight* w : {l.qkv.get(), l.o.get()}) {
      if (w != nullptr) total += static_cast<double>(w->n_in()) * static_cast<double>(w->n_out());
    }
  }
  return total;
}

}  // namespace lowkey
