#ifndef LOWKEY_ENGINE_MODEL_DEVICE_DEVICE_TRANSFORMER_H_
#define LOWKEY_ENGINE_MODEL_DEVICE_DEVICE_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/device/sampling.h"
#include "engine/loader/checkpoint.h"
#include "engine/model/decoder.h"
#include "engine/model/device/device_weight_set.h"

namespace lowkey {

// The decoder on a device. A step is queued as a whole, and only Logits waits for it. A step whose
// mechanisms plan the same work as an earlier one (AttentionMechanism::PlanKey) is queued again as
// it was.
class DeviceTransformer : public Decoder {
 public:
  // Copies the checkpoint's weights to the device, which outlives the model. RESOURCE_EXHAUSTED
  // when its memory cannot be had.
  static absl::StatusOr<std::unique_ptr<DeviceTransformer>> Load(
      std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options, ThreadPool& pool,
      Device& device);

  absl::Status Forward(absl::Span<const int32_t> tokens, absl::Span<const int64_t> positions,
                       absl::Span<const Group> groups) override;
  int64_t max_logit_rows() const override { return options_.max_logit_rows; }
  absl::Status Logits(absl::Span<const int64_t> rows) override;
  // Called before Forward: these rows take their tokens from `results`, on the device.
  void TakeDrawn(const SampleResult* results, absl::Span<const DrawnToken> drawn);
  // Queues logits that stay on the device, [n_rows, vocab_size], until the next call.
  const float* QueueLogits(absl::Span<const int64_t> rows);
  absl::Span<const float> logits_row(int64_t i) const override {
    return {logits_.data() + i * config().vocab_size, static_cast<size_t>(config().vocab_size)};
  }

  int64_t weight_bytes() const override;
  double work_per_row(int64_t weight_set) const override {
    return weight_sets_[weight_set]->work_per_row();
  }

 private:
  struct Layer {
    Buffer attention_norm, ffn_norm;
    std::unique_ptr<DeviceWeight> gate_up, down;
    Buffer gate_up_bias, down_bias;  // empty when absent
  };

  DeviceTransformer(std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options,
                    Device& device);
  absl::Status Take(ThreadPool& pool);
  absl::Status TakeLayer(const LayerTensors& tensors, ThreadPool& pool);
  absl::Status ReserveRows();
  StorageType row_type() const { return RowTypeOf(options_.weight_type); }
  // normed_ = the norm of the first n_rows rows of x_, or of the rows that `rows` lists; the same
  // in fp32 goes to `also_floats` unless that is nullptr.
  void Norm(const Buffer& weight, int64_t n_rows, const int32_t* rows = nullptr,
            float* also_floats = nullptr);
  // Returns the inputs of a layer in fp32; nullptr where the step does not read them.
  const float* input_floats() const;
  void UploadInputs(absl::Span<const int32_t> tokens, absl::Span<const int64_t> positions);
  // The step's layers, all queued.
  void Queue(int64_t n_rows, absl::Span<const Group> groups);
  void Attend(int64_t layer, absl::Span<const Group> groups);
  void FeedForward(const Layer& layer, int64_t n_rows);

  const DecoderOptions options_;
  Device& device_;
  const uint64_t number_;  // of this model in the process
  std::vector<Layer> layers_;
  std::vector<std::unique_ptr<DeviceWeightSet>> weight_sets_;
  Buffer final_norm_;
  std::unique_ptr<DeviceWeight> embedding_;  // as rows are stored; nullptr: lm_head_ is also that
  std::unique_ptr<DeviceWeight> lm_head_;

  // The step's inputs (its rows' tokens, their positions, and which of the tokens were drawn); its
  // rows of the residual stream, normed (as they meet weights, and in fp32) and gated; logits on
  // the device and on the host.
  Buffer inputs_, wanted_rows_;
  const SampleResult* results_ = nullptr;
  std::vector<DrawnToken> drawn_;
  Buffer x_, normed_, normed_floats_, gate_up_, gated_;
  bool reads_inputs_ = false;  // the step reads the layers' inputs in fp32
  Buffer device_logits_;
  std::vector<float> logits_;
  std::vector<int32_t> narrow_;  // inputs or rows to upload
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_DEVICE_DEVICE_TRANSFORMER_H_
