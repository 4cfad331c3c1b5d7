#ifndef LOWKEY_ENGINE_ATTENTION_ATP_INPUT_PAGES_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_INPUT_PAGES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/attention/attention.h"

namespace lowkey {

// Inputs of the layers (x, after the norm) for basis input, of tokens whose block is open: slabs of
// 64 tokens in AtpState::input_pages, [n_layers][64][input_dim] in the cache's type.
int64_t InputPageBytes(const AttentionGeometry& geometry);

// Returns whether a segment has basis input.
bool AnyHasInputs(absl::Span<const Segment> segments);

// Writes the inputs, at rows.layer, of the segments whose basis is input. They own their pages.
void WriteInputs(const AttentionGeometry& geometry, absl::Span<const Segment> segments,
                 const LayerRows& rows, ThreadPool& pool);

// Reads a page's tokens from `begin` on as floats, one after the other.
void ReadInputs(const AttentionGeometry& geometry, const Slab& page, int64_t layer, int64_t begin,
                float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_INPUT_PAGES_H_
