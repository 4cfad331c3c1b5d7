#ifndef LOWKEY_ENGINE_MODEL_DECODER_H_
#define LOWKEY_ENGINE_MODEL_DECODER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/loader/checkpoint.h"

namespace lowkey {

struct DecoderOptions {
  // Type of all matrices except the embedding. kFloat8: on a device only.
  StorageType weight_type = StorageType::kFloat32;
  // On the host: matrices of GGUF's quantized types keep their codes and scales instead.
  bool keeps_codes = false;
  int64_t max_rows = 512;  // in a step
  // On a device: rows of a call to Logits. Each such row has memory for its logits.
  int64_t max_logit_rows = 64;
  // Called with (bytes loaded, bytes in all) by the loading thread.
  std::function<void(int64_t, int64_t)> progress;
};

// The rows that linear maps of a decoder layer are multiplied with: of q, k and v; of o; of gate
// and up; of down.
enum class LinearInput { kQkv, kOutput, kGateUp, kDown };

// A Llama-style decoder with its weights, computing on the host (Transformer) or on a device
// (DeviceTransformer). One thread. Errors are a device's failures, for good: results after one
// cannot be used.
class Decoder {
 public:
  // Called with rows that linear maps of a layer are about to be multiplied with; row i is at
  // x + i * ld.
  using Observer = std::function<void(int64_t layer, LinearInput input, const float* x, int64_t ld,
                                      int64_t n_rows)>;

  // The step's next n_rows rows, all of one weight set, and the mechanisms that attend to them.
  struct Group {
    int64_t weight_set = 0;
    int64_t n_rows = 0;
    std::vector<AttentionMechanism*> mechanisms;
  };

  virtual ~Decoder() = default;

  // Computes the step's rows, group after group: row i is token tokens[i] at positions[i]. The
  // mechanisms have planned the segments that cover their group's rows. Leaves hidden states for
  // Logits. At most max_rows rows; a weight set at most once.
  virtual absl::Status Forward(absl::Span<const int32_t> tokens,
                               absl::Span<const int64_t> positions,
                               absl::Span<const Group> groups) = 0;
  // Every later Forward calls the observer. UNIMPLEMENTED on a device.
  virtual absl::Status Observe(Observer observer);

  virtual int64_t max_logit_rows() const = 0;
  // Computes the logits of row rows[i] of the last Forward into logits_row(i); at most
  // max_logit_rows() rows.
  virtual absl::Status Logits(absl::Span<const int64_t> rows) = 0;
  virtual absl::Span<const float> logits_row(int64_t i) const = 0;

  const ModelConfig& config() const { return checkpoint_->config; }
  virtual int64_t weight_bytes() const = 0;
  // Set 0 is the checkpoint's own; mechanism i of the checkpoint's bundle has set_of_bundled(i).
  int64_t n_weight_sets() const { return n_weight_sets_; }
  int64_t set_of_bundled(size_t i) const { return set_of_bundled_[i]; }
  // Multiply-adds per row of the maps around attention, over all layers.
  virtual double work_per_row(int64_t weight_set) const = 0;

 protected:
  explicit Decoder(std::shared_ptr<const Checkpoint> checkpoint);
  // Calls begin(config) for every weight set in order, and add_layer(tensors) for each of its
  // layers, whose tensors live as long as the call. Returns the first error.
  absl::Status TakeWeightSets(ThreadPool& pool, absl::FunctionRef<void(const ModelConfig&)> begin,
                              absl::FunctionRef<absl::Status(const LayerTensors&)> add_layer) const;

  const std::shared_ptr<const Checkpoint> checkpoint_;

 private:
  std::vector<int64_t> set_of_bundled_;
  int64_t n_weight_sets_ = 1;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_DECODER_H_
