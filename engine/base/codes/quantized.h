#ifndef LOWKEY_ENGINE_BASE_CODES_QUANTIZED_H_
#define LOWKEY_ENGINE_BASE_CODES_QUANTIZED_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"

namespace lowkey {

// Writes blocks of one of GGUF's quantized types (kQ4_0 to kMXFP4), possibly unaligned, as floats
// to out [n_blocks, block_size]. Rounds as ggml's own reference does: every product and sum once,
// in fp32. A scale that overflows gives infinities, as there.
void Dequantize(DType dtype, const std::byte* blocks, int64_t n_blocks, float* out);

// The stored numbers of a block of one of these types, in the order of its elements. With g the
// element's group, of 16 elements in kQ6_K and of 32 otherwise, an element is
//   kQ8_0                 scale * int8(code)
//   kQ4_0, kQ5_0          scale * (code - 8), scale * (code - 16)
//   kQ4_1, kQ5_1          scale * code + add
//   kQ4_K, kQ5_K          scale * scale_factors[g] * code - add * add_factors[g]
//   kQ6_K                 scale * int8(scale_factors[g]) * (code - 32)
struct CodedBlock {
  std::array<uint8_t, 256> codes = {};
  uint16_t scale = 0, add = 0;  // IEEE half precision
  std::array<uint8_t, 16> scale_factors = {}, add_factors = {};
};
void ReadCodes(DType dtype, const std::byte* block, CodedBlock& out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_CODES_QUANTIZED_H_
