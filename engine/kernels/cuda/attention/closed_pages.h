#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_CLOSED_PAGES_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_CLOSED_PAGES_H_

// Views of closed pages (engine/kernels/device/attention.h) for kernels. Included by .cu files.

#include <type_traits>

#include "engine/kernels/cuda/attention/rows.h"

namespace lowkey {

// The codes and numbers of one KV head at one layer. Byte is uint8_t or const uint8_t.
template <typename Byte>
struct ClosedTile {
  using Word = std::conditional_t<std::is_const_v<Byte>, const uint32_t, uint32_t>;

  Byte* keys;
  Byte* values;
  Word* key_numbers;
  Word* value_numbers;
};

template <typename Byte>
__device__ inline ClosedTile<Byte> ViewClosed(Byte* tile, int64_t head_dim, int64_t bits) {
  using Word = typename ClosedTile<Byte>::Word;
  const int64_t plane_bytes = ClosedPlaneBytes(head_dim, bits);
  Word* numbers = reinterpret_cast<Word*>(tile + 2 * plane_bytes);
  return {tile, tile + plane_bytes, numbers, numbers + kPageTokensInt / kClosedGroup * head_dim};
}

// Returns closed page `page` of the task's sequence.
__device__ inline const uint8_t* ClosedTileOf(const AttendArgs& a, const RowTileTask& task,
                                              int page, int64_t kv_head) {
  return reinterpret_cast<const uint8_t*>(a.pages[task.closed_pages + page]) +
         (a.layer * a.n_kv_heads + kv_head) * ClosedTileBytes(a.head_dim, a.closed_bits);
}

// Returns the page of the tile's own rows, which they read as it was written.
__device__ inline int OwnPage(const AttendArgs& a, const RowTileTask& task) {
  return PlaceOf(task, a.group, 0).position / kPageTokensInt;
}

struct ScaleAndMiddle {
  float scale, middle;

  __device__ __forceinline__ float Number(float code) const { return fmaf(scale, code, middle); }
};

__device__ __forceinline__ ScaleAndMiddle Unpacked(uint32_t numbers) {
  return {__uint_as_float(numbers << 16), __uint_as_float(numbers & 0xffff0000u)};
}

// Widens a code of kBits, stored as code + 2^(kBits - 1): the code becomes the lowest bits of 2^23.
template <int kBits>
__device__ __forceinline__ float CodeOf(uint32_t stored) {
  constexpr float kZero = static_cast<float>((1 << 23) + (1 << (kBits - 1)));
  return __uint_as_float(0x4b000000u | (stored & ((1u << kBits) - 1))) - kZero;
}

// Takes eight codes, aligned to kBits bytes.
template <int kBits>
__device__ __forceinline__ void TakeCodes(const uint8_t* from, float (&x)[8]) {
  constexpr int kPerWord = 32 / kBits;
  struct alignas(kBits) Words {
    uint32_t x[kBits / 4];
  };
  const Words words = *reinterpret_cast<const Words*>(from);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i] = CodeOf<kBits>(words.x[i / kPerWord] >> (i % kPerWord * kBits));
  }
}

// Returns number i of a plane's codes.
__device__ inline float CodeAt(const uint8_t* codes, int64_t i, int64_t bits) {
  if (bits == 8) return CodeOf<8>(codes[i]);
  return CodeOf<4>(static_cast<uint32_t>(codes[i / 2]) >> (i % 2 * 4));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_CLOSED_PAGES_H_
