#ifndef LOWKEY_ENGINE_ATTENTION_SLICES_INPUT_H_
#define LOWKEY_ENGINE_ATTENTION_SLICES_INPUT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/attention/geometry.h"
#include "engine/config/projections.h"

namespace lowkey {

// Gives a row [q | k | v] (LayerRows) the keys and values that are slices of x [input_dim], for
// callers without a weight set: KV head j is columns j * head_dim .. of x, a key rotated by its
// position times the frequencies [head_dim / 2]. Leaves what the mechanism projects, and all of a
// mechanism without queries.
void TakeSlices(const AttentionGeometry& geometry, const ProjectionUse& use,
                absl::Span<const double> inverse_frequencies, int64_t position, const float* x,
                float* row);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SLICES_INPUT_H_
