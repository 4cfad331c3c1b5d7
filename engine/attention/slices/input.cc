#include "engine/attention/slices/input.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/kernels/kernels.h"

namespace lowkey {

void TakeSlices(const AttentionGeometry& g, const ProjectionUse& use,
                absl::Span<const double> inverse_frequencies, int64_t position, const float* x,
                float* row) {
  if (!use.Has(Projection::kQ)) return;
  float *keys = row + g.q_dim(), *values = keys + g.k_dim();
  if (!use.Has(Projection::kV)) std::copy_n(x, g.v_dim(), values);
  if (use.Has(Projection::kK)) return;
  std::copy_n(x, g.k_dim(), keys);
  std::vector<float> cos, sin;
  for (const double frequency : inverse_frequencies) {
    const double angle = static_cast<double>(position) * frequency;
    cos.push_back(static_cast<float>(std::cos(angle)));
    sin.push_back(static_cast<float>(std::sin(angle)));
  }
  Kernels().rope(keys, cos.data(), sin.data(), g.n_kv_heads, g.key_dim());
}

}  // namespace lowkey
