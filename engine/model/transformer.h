#ifndef LOWKEY_ENGINE_MODEL_TRANSFORMER_H_
#define LOWKEY_ENGINE_MODEL_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/buffer.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/linear.h"
#include "engine/loader/checkpoint.h"
#include "engine/loader/mapped_file.h"
#include "engine/model/decoder.h"
#include "engine/model/weight_set.h"

namespace lowkey {

// The decoder on the host, over packed weights.
class Transformer : public Decoder {
 public:
  // Packs the checkpoint's weights. Rows of the embedding table are read from its file as they are
  // needed, which takes no memory, and survives a file that is cut short. `pool` outlives the
  // model. RESOURCE_EXHAUSTED when memory cannot be had.
  static absl::StatusOr<std::unique_ptr<Transformer>> Load(
      std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options,
      ThreadPool& pool);

  absl::Status Forward(absl::Span<const int32_t> tokens, absl::Span<const int64_t> positions,
                       absl::Span<const Group> groups) override;
  absl::Status Observe(Observer observer) override;
  static constexpr int64_t kMaxLogitRows = 64;
  int64_t max_logit_rows() const override { return kMaxLogitRows; }
  absl::Status Logits(absl::Span<const int64_t> rows) override;
  absl::Span<const float> logits_row(int64_t i) const override {
    return {logits_.data() + i * RowStride(lm_head_.n_out_padded()),
            static_cast<size_t>(config().vocab_size)};
  }

  int64_t weight_bytes() const override;
  double work_per_row(int64_t weight_set) const override {
    return weight_sets_[weight_set]->work_per_row();
  }

 private:
  struct Layer {
    std::vector<float> attention_norm, ffn_norm;
    PackedWeight gate_up, down;
    std::vector<float> gate_up_bias, down_bias;  // empty when absent
  };

  Transformer(std::shared_ptr<const Checkpoint> checkpoint, ThreadPool& pool)
      : Decoder(std::move(checkpoint)), pool_(pool) {}
  absl::Status Pack(const DecoderOptions& options);
  void ReserveRows(int64_t max_rows);
  // x_ = the rows of `tokens`. UNAVAILABLE: the file has become shorter, or cannot be read.
  absl::Status Embed(absl::Span<const int32_t> tokens);
  // normed_ = the norm of x_.
  void Norm(const std::vector<float>& weight, int64_t n_rows);
  // x_ += the attention of normed_, by weight set and mechanism.
  void Attend(int64_t layer, absl::Span<const Group> groups);
  // x_ += the feed-forward network of normed_.
  void FeedForward(int64_t layer, int64_t n_rows);

  ThreadPool& pool_;
  Observer observer_;
  std::vector<Layer> layers_;
  std::vector<std::unique_ptr<WeightSet>> weight_sets_;
  std::shared_ptr<const MappedFile> embedding_file_;  // null: the table is in memory
  std::vector<std::byte> embedding_row_;
  std::vector<float> final_norm_;
  PackedWeight lm_head_;

  // Rows of the step: residual stream, normed input, scratch of AddLinear, gate and up; logits.
  AlignedVector<float> x_, normed_, product_, ffn_, logits_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_TRANSFORMER_H_
