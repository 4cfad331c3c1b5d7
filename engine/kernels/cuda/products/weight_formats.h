#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_WEIGHT_FORMATS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_WEIGHT_FORMATS_H_

// Weights as tiles read them: 64 bytes of a row are a block, 16 of which a lane widens to bf16, 8
// successive k for each of the block's chunks of 32. A format says
//   kChunks        chunks in a block
//   kScalesBlocks  whether a block's products have a scale of their own
//   kScalesRows    whether a row's sum has
//   Widen(piece, chunk)  exact

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

// The narrow ones as NarrowPlace orders them: four k's are a word, whose even bytes come first.
struct Int8Format {
  static constexpr int kChunks = 2;
  static constexpr bool kScalesBlocks = true, kScalesRows = false;

  // The lower bytes of both halves: 128 + their lower seven bits is a bf16 whose last bits they
  // are; from that 128 is taken, or 256 where the sign is set.
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

  // The upper bytes of both halves: exponent and mantissa moved to bf16's places are the number by
  // 2^-120, subnormals included.
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
