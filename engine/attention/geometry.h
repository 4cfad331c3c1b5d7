#ifndef LOWKEY_ENGINE_ATTENTION_GEOMETRY_H_
#define LOWKEY_ENGINE_ATTENTION_GEOMETRY_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "engine/config/attention_options.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// The sizes of a model's attention.
struct AttentionGeometry {
  int64_t n_layers = 0;
  int64_t n_heads = 0;  // a multiple of n_kv_heads: query head h reads KV head h / group()
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  std::optional<int64_t>
      sliding_window;  // a row sees itself and sliding_window - 1 tokens before it
  StorageType cache_type = StorageType::kFloat32;
  std::optional<int64_t> hidden_dim = {};  // width of a layer's input; n_heads * head_dim if unset
  std::optional<int64_t> score_dim = {};   // numbers of a query and of a key; head_dim if unset

  int64_t key_dim() const { return score_dim.value_or(head_dim); }
  int64_t q_dim() const { return n_heads * key_dim(); }
  int64_t k_dim() const { return n_kv_heads * key_dim(); }
  int64_t v_dim() const { return n_kv_heads * head_dim; }
  int64_t out_dim() const { return n_heads * head_dim; }
  int64_t input_dim() const { return hidden_dim.value_or(out_dim()); }
  int64_t group() const { return n_heads / n_kv_heads; }
  // head_dim rounded up to the kernels' panel: the width of a cached value row.
  int64_t head_dim_padded() const;
};

// Bytes of a page of kPageTokens tokens over all layers.
int64_t PageBytes(const AttentionGeometry& geometry);

// FAILED_PRECONDITION naming the mechanism where the model has a sliding window.
absl::Status RefuseSlidingWindow(const AttentionGeometry& geometry, Mechanism mechanism);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_GEOMETRY_H_
