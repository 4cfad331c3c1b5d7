#ifndef LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_MMA_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_MMA_H_

// mma.h for a C++ compiler. Only mma.h includes it.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey {
namespace emulated {

// Returns number `half` of the two bf16 in a word.
inline float HalfOf(uint32_t word, int half) {
  return BFloat16ToFloat(static_cast<uint16_t>(word >> (16 * half)));
}

// Loads four matrices: where transposed, element (row, column) becomes (column, row).
template <bool kTransposed>
void LoadTilesAs(uint32_t (&x)[4], const void* row) {
  LK_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0);
  const auto* mine = static_cast<const uint16_t*>(row);
  ExchangeInWarp(&mine, sizeof(mine), [&](const auto* lanes) {
    const int g = LaneIndex() / 4, t = LaneIndex() % 4;
    for (int i = 0; i < 4; ++i) {
      uint32_t halves[2];
      for (int j = 0; j < 2; ++j) {
        const int from_row = kTransposed ? 2 * t + j : g, column = kTransposed ? g : 2 * t + j;
        const uint16_t* given;
        std::memcpy(&given, lanes[8 * i + from_row], sizeof(given));
        halves[j] = given[column];
      }
      x[i] = halves[0] | halves[1] << 16;
    }
  });
  SyncWarp();
}

}  // namespace emulated

inline void MultiplyTiles(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragments {
    uint32_t a[4], b[2];
  };
  const Fragments mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulated::ExchangeInWarp(&mine, sizeof(mine), [&](const auto* lanes) {
    const int g = emulated::LaneIndex() / 4, t = emulated::LaneIndex() % 4;
    const auto word = [&](int lane, size_t at) {
      uint32_t given;
      std::memcpy(&given, lanes[lane] + at, sizeof(given));
      return given;
    };
    for (int k = 0; k < 16; ++k) {
      const int lane = k % 8 / 2, upper = k / 8;
      for (int i = 0; i < 4; ++i) {
        const uint32_t a_word = word(4 * g + lane, sizeof(uint32_t) * (2 * upper + i / 2));
        const uint32_t b_word =
            word(4 * (2 * t + i % 2) + lane, offsetof(Fragments, b) + sizeof(uint32_t) * upper);
        c[i] += emulated::HalfOf(a_word, k % 2) * emulated::HalfOf(b_word, k % 2);
      }
    }
  });
}

inline void LoadTiles(uint32_t (&x)[4], const void* row) { emulated::LoadTilesAs<false>(x, row); }
inline void LoadTilesTransposed(uint32_t (&x)[4], const void* row) {
  emulated::LoadTilesAs<true>(x, row);
}

inline uint32_t PackBFloat16(float low, float high) {
  return FloatToBFloat16(low) | static_cast<uint32_t>(FloatToBFloat16(high)) << 16;
}

inline uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sums = 0;
  for (int half : {0, 1}) {
    const float sum =
        std::fma(emulated::HalfOf(a, half), emulated::HalfOf(b, half), emulated::HalfOf(c, half));
    sums |= static_cast<uint32_t>(FloatToBFloat16(sum)) << (16 * half);
  }
  return sums;
}

inline float Exp2(float x) { return std::exp2(x); }

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_MMA_H_
