#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_WEIGHT_FORMATS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_WEIGHT_FORMATS_H_

// Formats of weights for tiles. 64 bytes of a row are a block; a lane widens 16 of these bytes to
// bf16: 8 successive k for each of the block's chunks of 32. A format has

#include "engine/kernels/cuda/grid/mma.h"

namespace lowkey {

struct alignas(16) Piece {
  uint32_t words[4];
};

struct BFloat16Format {
  static constexpr int kChunks = 1;
  static constexpr bool kScalesBlocks = false, kScalesRows = false;
  __device__ static inline Piece Widen(const Piece& stored, int /*chunk*/) { return stored; }
};

// Narrow weights are in the order of NarrowPlace: four k are a word, whose even bytes come first.
struct Int8Format {
  static constexpr int kChunks = 2;
  static constexpr bool kScalesBlocks = true, kScalesRows = false;

  // Widens the lower bytes of both halves. A byte's lower seven bits become the last bits of a bf16
  // of 128; then 128 is subtracted, or 256 where the sign is set.
  __device__ static inline uint32_t Pair(uint32_t word) {
    constexpr uint32_t kOnes = 0x3f803f80;
    return MultiplyAddPairs((word & 0x007f007fu) | 0x43004300u, kOnes,
                            (word & 0x00800080u) | 0xc300c300u);
  }
  __device__ static inline Piece Widen(const Piece& stored, int chunk) {
    const uint32_t first = stored.words[2 * chunk], second = stored.words[2 * chunk + 1];
    return {{Pair(first), Pair(first >> 8), Pair(second), Pair(second >> 8)}};
  }
};

struct Float8Format {
  static constexpr int kChunks = 2;
  static constexpr bool kScalesBlocks = false, kScalesRows = true;

  // Widens the upper bytes of both halves. Exponent and mantissa moved to bf16's places are the
  // number times 2^-120, subnormals included.
  __device__ static inline uint32_t Pair(uint32_t word) {
    constexpr uint32_t kTwoTo120 = 0x7b807b80, kNothing = 0x80008000;  // -0: keeps a zero's sign
    return MultiplyAddPairs((word & 0x80008000u) | ((word & 0x7f007f00u) >> 4), kTwoTo120,
                            kNothing);
  }
  __device__ static inline Piece Widen(const Piece& stored, int chunk) {
    const uint32_t first = stored.words[2 * chunk], second = stored.words[2 * chunk + 1];
    return {{Pair(first << 8), Pair(first), Pair(second << 8), Pair(second)}};
  }
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_WEIGHT_FORMATS_H_
