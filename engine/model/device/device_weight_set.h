#ifndef LOWKEY_ENGINE_MODEL_DEVICE_DEVICE_WEIGHT_SET_H_
#define LOWKEY_ENGINE_MODEL_DEVICE_DEVICE_WEIGHT_SET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/device/device.h"
#include "engine/loader/checkpoint.h"
#include "engine/model/weight_set.h"

namespace lowkey {

// WeightSet's linear maps around attention, on a device. Rows meet weights in RowTypeOf the
// weights' type, and q, k and v are rounded to that type before norms and RoPE; everything else is
// fp32. All functions except AddLayer and ReserveRows only queue.
class DeviceWeightSet : public WeightSetSizes {
 public:
  // `device` outlives this.
  DeviceWeightSet(const ModelConfig& config, StorageType type, Device& device)
      : WeightSetSizes(config), type_(type), device_(device) {}
  // Uploads the tensors that WeightSet::AddLayer packs.
  absl::Status AddLayer(const LayerTensors& tensors, ThreadPool& pool);
  // Takes memory for steps of that many rows.
  absl::Status ReserveRows(int64_t max_rows);

  // Begins a step: row i is at positions[i], on the device, and the mechanisms have planned.
  void Begin(const int32_t* positions, int64_t n_rows,
             absl::Span<AttentionMechanism* const> mechanisms);
  // The layer's q, k, v of all rows from x [n_rows, hidden_dim], as they meet weights and, where
  // they are read, in fp32.
  LayerRows Project(int64_t layer, const void* x, const float* x_floats);
  // residual [n_rows, hidden_dim] += Wo LayerRows::out, which the mechanisms filled, plus bias.
  void Output(int64_t layer, float* residual);

  int64_t weight_bytes() const;

 private:
  struct Layer {
    Buffer q_norm, k_norm, qkv_bias, o_bias;  // empty when absent
    std::unique_ptr<DeviceWeight> qkv, o;     // qkv: nullptr when absent
  };

  const StorageType type_;
  Device& device_;
  std::vector<Layer> layers_;
  int64_t n_rows_ = 0;
  const CacheSlots* pages_ = nullptr;  // where the step's keys and values go beside their rotation
  bool rounds_results_ = false;        // the step's mechanisms fill rounded_
  Buffer inverse_frequencies_;         // double
  Buffer qkv_, attended_, cos_, sin_;
  // q, k, v as the product gives them, and attended as it meets weights, unless weights are fp32;
  // same layouts.
  Buffer rounded_qkv_, rounded_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_DEVICE_DEVICE_WEIGHT_SET_H_
