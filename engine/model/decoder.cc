#include "engine/model/decoder.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/base/tensor.h"

namespace lowkey {
namespace {

// The attention tensors of one layer of a bundled mechanism: its own, the checkpoint's, or
// W + scale B A where the bundle brings a low-rank change. Tensors without use are empty.
class BundledLayerTensors {
 public:
  BundledLayerTensors(const Checkpoint& checkpoint, const BundledMechanism& mechanism,
                      int64_t layer, ThreadPool& pool);

  const LayerTensors& tensors() const { return tensors_; }

 private:
  TensorView Merge(const TensorView& base, const BundledProjection& projection, double scale,
                   ThreadPool& pool);

  LayerTensors tensors_;
  std::vector<std::vector<float>> merged_;
};

BundledLayerTensors::BundledLayerTensors(const Checkpoint& checkpoint,
                                         const BundledMechanism& mechanism, int64_t layer,
                                         ThreadPool& pool) {
  const LayerTensors& base = checkpoint.layers[layer];
  if (mechanism.config.attention_bias) {
    tensors_.q_bias = base.q_bias;
    tensors_.k_bias = base.k_bias;
    tensors_.v_bias = base.v_bias;
  }
  if (mechanism.config.output_bias) tensors_.o_bias = base.o_bias;
  if (mechanism.config.qk_norm) {
    tensors_.q_norm = base.q_norm;
    tensors_.k_norm = base.k_norm;
  }
  const std::pair<const TensorView*, TensorView*> parts[kNumProjections] = {
      {&base.q_proj, &tensors_.q_proj},
      {&base.k_proj, &tensors_.k_proj},
      {&base.v_proj, &tensors_.v_proj},
      {&base.o_proj, &tensors_.o_proj}};
  for (int i = 0; i < kNumProjections; ++i) {
    if (!mechanism.use.has[i]) continue;
    const BundledProjection& projection = mechanism.layers[layer].projections[i];
    if (projection.full.data != nullptr) {
      *parts[i].second = projection.full;
    } else if (projection.a.data != nullptr) {
      *parts[i].second = Merge(*parts[i].first, projection, mechanism.lora_scale, pool);
    } else {
      *parts[i].second = *parts[i].first;
    }
  }
}

TensorView BundledLayerTensors::Merge(const TensorView& base, const BundledProjection& projection,
                                      double scale, ThreadPool& pool) {
  const int64_t n_out = base.shape[0], n_in = base.shape[1], rank = projection.a.shape[0];
  std::vector<float> a(rank * n_in), b(n_out * rank);
  LoadFloats(projection.a, 0, rank * n_in, a.data());
  LoadFloats(projection.b, 0, n_out * rank, b.data());
  std::vector<float>& out = merged_.emplace_back(n_out * n_in);
  pool.ParallelFor(n_out, [&](int64_t row, int) {
    float* to = out.data() + row * n_in;
    LoadRow(base, row, to);
    for (int64_t k = 0; k < rank; ++k) {
      const auto factor = static_cast<float>(scale * b[row * rank + k]);
      for (int64_t j = 0; j < n_in; ++j) to[j] += factor * a[k * n_in + j];
    }
  });
  TensorView view;
  view.dtype = DType::kF32;
  view.shape = base.shape;
  view.data = reinterpret_cast<const std::byte*>(out.data());
  return view;
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const Checkpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)) {
  for (const BundledMechanism& m : checkpoint_->mechanisms) {
    set_of_bundled_.push_back(m.has_own_projections ? n_weight_sets_++ : 0);
  }
}

absl::Status Decoder::TakeWeightSets(
    ThreadPool& pool, absl::FunctionRef<void(const ModelConfig&)> begin,
    absl::FunctionRef<absl::Status(const LayerTensors&)> add_layer) const {
  const Checkpoint& c = *checkpoint_;
  begin(c.config);
  for (const LayerTensors& t : c.layers) LK_RETURN_IF_ERROR(add_layer(t));
  for (const BundledMechanism& m : c.mechanisms) {
    if (!m.has_own_projections) continue;
    begin(m.config);
    for (int64_t i = 0; i < c.config.n_layers; ++i) {
      const BundledLayerTensors layer(c, m, i, pool);
      LK_RETURN_IF_ERROR(add_layer(layer.tensors()));
    }
  }
  return absl::OkStatus();
}

absl::Status Decoder::Observe(Observer) {
  return absl::UnimplementedError("device: rows in its memory are not observed, expected cpu");
}

}  // namespace lowkey
