#ifndef LOWKEY_ENGINE_MODEL_WEIGHT_SET_H_
#define LOWKEY_ENGINE_MODEL_WEIGHT_SET_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/buffer.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/linear.h"
#include "engine/loader/checkpoint.h"

namespace lowkey {

// Holds what the weight sets of all places share: the sizes of q, k and v, and where they lie. A
// set with queries but no map for keys, or for values, takes slices of the layer's input instead:
// KV head j is columns j * head_dim .. (docs/bundles.md).
class WeightSetSizes {
 public:
  // Multiply-adds per row, over all layers.
  double work_per_row() const { return work_per_row_; }
  // Returns whether keys or values are slices of the inputs.
  bool has_slices() const { return slices_keys_ || slices_values_; }

 protected:
  // `config` describes heads, biases, norms and RoPE.
  explicit WeightSetSizes(const ModelConfig& config) : config_(config) {}
  // Counts one more layer, and returns its projections q, k and v, without those that are absent.
  std::vector<TensorView> CountLayer(const LayerTensors& tensors);
  // Returns a layer's rows: q, k and v lie side by side in rows of `qkv`, nullptr where absent.
  LayerRows RowsOf(int64_t layer, const float* x, const float* qkv, int64_t ld_qkv,
                   float* out) const;
  int64_t qkv_dim() const { return q_dim_ + k_dim_ + v_dim_; }
  int64_t out_dim() const { return int64_t{config_.n_heads} * config_.head_dim; }

  const ModelConfig config_;
  int64_t q_dim_ = 0, k_dim_ = 0, v_dim_ = 0;  // 0 when absent
  bool slices_keys_ = false, slices_values_ = false;

 private:
  double work_per_row_ = 0;
};

// The linear maps around attention: Project takes rows of x to rotated q, k, v; Output takes the
// attended rows back. Mechanisms with the same maps share one set. Each row of a step belongs to
// one set, and row numbers here count the set's own rows. One thread; work inside is spread over
// the pool.
class WeightSet : public WeightSetSizes {
 public:
  using PackFn = absl::FunctionRef<absl::StatusOr<PackedWeight>(absl::Span<const TensorView>)>;

  WeightSet(const ModelConfig& config, ThreadPool& pool);
  // Packs the attention tensors of the next layer. A mechanism without q, k or v leaves that tensor
  // empty (data == nullptr) in every layer.
  absl::Status AddLayer(const LayerTensors& tensors, PackFn pack);

  // Takes memory for steps of that many rows.
  void ReserveRows(int64_t max_rows);
  // Begins a step: row i is at positions[i].
  void Begin(absl::Span<const int64_t> positions);
  // Returns the layer's q, k, v of all rows of x [n_rows, hidden_dim], after norms of heads and
  // RoPE; all nullptr where the set has no queries.
  LayerRows Project(int64_t layer, const float* x);
  // residual [n_rows, hidden_dim] += Wo LayerRows::out (which the mechanisms filled) + bias, with
  // scratch for AddLinear.
  void Output(int64_t layer, float* residual, float* scratch);

  int64_t n_rows() const { return n_rows_; }
  int64_t weight_bytes() const;
  const std::vector<double>& inverse_frequencies() const { return inverse_frequencies_; }

 private:
  struct Layer {
    std::vector<float> q_norm, k_norm;  // empty when absent
    PackedWeight qkv, o;
    std::vector<float> qkv_bias, o_bias;  // empty when absent
  };

  void NormHeads(const Layer& layer, float* row) const;
  void TakeSlices(const float* x, float* row) const;
  void Rotate(const Layer& layer, const float* x);
  // Layers whose maps have different forms are padded differently.
  int64_t ld_qkv() const { return RowStride(std::max(most_qkv_padded_, qkv_dim())); }

  ThreadPool& pool_;
  std::vector<Layer> layers_;
  std::vector<double> inverse_frequencies_;  // [key_dim / 2]
  int64_t most_qkv_padded_ = 0;              // of a layer's product
  int64_t n_rows_ = 0;
  AlignedVector<float> qkv_, attended_, cos_, sin_;
};

// Returns the tensors' values one after the other; absent tensors are left out.
std::vector<float> Floats(std::initializer_list<const TensorView*> parts);

// Calls body(row) for every row, over the pool.
void ForRows(ThreadPool& pool, int64_t n_rows, absl::FunctionRef<void(int64_t)> body);

// Returns the geometry of a config's attention.
AttentionGeometry GeometryOf(const ModelConfig& config, StorageType cache_type);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_WEIGHT_SET_H_
