#ifndef LOWKEY_ENGINE_BASE_QUANTIZED_H_
#define LOWKEY_ENGINE_BASE_QUANTIZED_H_

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"

namespace lowkey {

// Writes blocks of one of GGUF's quantized types (kQ4_0 to kMXFP4), possibly unaligned, as floats
// to out [n_blocks, block_size]. Rounds as ggml's own reference does: every product and sum once,
// in fp32. A scale that overflows gives infinities, as there.
void Dequantize(DType dtype, const std::byte* blocks, int64_t n_blocks, float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_QUANTIZED_H_
