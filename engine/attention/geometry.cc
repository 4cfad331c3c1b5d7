#include "engine/attention/geometry.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/cache/cache.h"

namespace lowkey {

int64_t AttentionGeometry::head_dim_padded() const {
  const int64_t panel = Kernels().panel_columns;  // a power of two
  return (head_dim + panel - 1) & -panel;
}

int64_t PageBytes(const AttentionGeometry& g) {
  return g.n_layers * g.n_kv_heads * kPageTokens * (g.key_dim() + g.head_dim_padded()) *
         StorageBytes(g.cache_type);
}

absl::Status RefuseSlidingWindow(const AttentionGeometry& g, Mechanism mechanism) {
  if (!g.sliding_window.has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "attention.mechanism: ", std::string(MechanismName(mechanism)),
      " is not available for a model with a sliding window of ", *g.sliding_window, " tokens"));
}

}  // namespace lowkey
