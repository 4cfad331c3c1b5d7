#ifndef LOWKEY_ENGINE_MODEL_BUNDLED_LAYER_H_
#define LOWKEY_ENGINE_MODEL_BUNDLED_LAYER_H_

#include <cstdint>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/loader/checkpoint.h"

namespace lowkey {

// The attention tensors of one layer of a bundled mechanism: its own, the checkpoint's, or
// W + scale B A where the bundle brings a low-rank change. Tensors without use are empty.
class BundledLayerTensors {
 public:
  // `checkpoint` must outlive this.
  BundledLayerTensors(const Checkpoint& checkpoint, const BundledMechanism& mechanism,
                      int64_t layer, ThreadPool& pool);
  BundledLayerTensors(const BundledLayerTensors&) = delete;
  BundledLayerTensors& operator=(const BundledLayerTensors&) = delete;

  const LayerTensors& tensors() const { return tensors_; }

 private:
  TensorView Merge(const TensorView& base, const BundledProjection& projection, double scale,
                   ThreadPool& pool);

  LayerTensors tensors_;
  std::vector<std::vector<float>> merged_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_BUNDLED_LAYER_H_
