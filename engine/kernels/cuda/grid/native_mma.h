#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_MMA_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_MMA_H_

// mma.h for nvcc. Only mma.h includes it.

#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey {

__device__ inline void MultiplyTiles(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void LoadTiles(uint32_t (&x)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}

__device__ inline void LoadTilesTransposed(uint32_t (&x)[4], const void* row) {
  const auto from = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(from)
               : "memory");
}

__device__ inline uint32_t PackBFloat16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

__device__ inline uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;\n" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}

__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_MMA_H_
