#ifndef LOWKEY_ENGINE_ATTENTION_ATP_INPUT_PAGES_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_INPUT_PAGES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/attention/attention.h"

namespace lowkey {

// Inputs of the layers (x, after the norm) of tokens whose block is open, for basis input: slabs
// of 64 tokens each in AtpState::input_pages, [n_layers][64][input_dim] in the cache's type.
int64_t InputPageBytes(const AttentionGeometry& geometry);

// Writes the inputs of those segments whose basis is input, at rows.layer; their pages are there.
void WriteInputs(const AttentionGeometry& geometry, absl::Span<const Segment> segments,
                 const LayerRows& rows, ThreadPool& pool);

// Reads a page's tokens from `begin` on as floats, one after the other.
void ReadInputs(const AttentionGeometry& geometry, const Slab& page, int64_t layer, int64_t begin,
                float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_INPUT_PAGES_H_
