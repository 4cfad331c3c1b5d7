#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_WARPGROUP_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_WARPGROUP_H_

// warpgroup.h for nvcc. Only warpgroup.h includes it.

#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey {

template <int n>
__device__ inline void PinRegisters(float (&x)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int n>
__device__ inline void PinRegisters(uint32_t (&x)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+r"(x[i])::"memory");
}

__device__ inline void BeginProducts() {
  __syncwarp();  // all lanes of a warp begin together
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ inline void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int n>
__device__ inline void WaitProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(n) : "memory");
}
__device__ inline void ShowTiles() { asm volatile("fence.proxy.async;\n" ::: "memory"); }

// Returns the matrix descriptor of a tile (PTX ISA, "Matrix descriptor format"): the address in
// units of 16 bytes; the leading offset, which counts only where an operand is transposed and has
// more than one tile; 1,024 bytes from eight rows to the next eight; 128-byte swizzle.
__device__ inline uint64_t DescriptorOf(const uint16_t* tile, uint64_t leading_bytes = 16) {
  const auto address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
  return (address & 0x3ffff) >> 4 | (leading_bytes >> 4) << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}

// The operands of the sums: their places in the text, and themselves.
#define LK_PLACES_4 "%0, %1, %2, %3"
#define LK_PLACES_8 LK_PLACES_4 ", %4, %5, %6, %7"
#define LK_PLACES_16 LK_PLACES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define LK_PLACES_32 \
  LK_PLACES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LK_PLACES_64                                                                 \
  LK_PLACES_32                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LK_PLACES_96                                                                 \
  LK_PLACES_64                                                                       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LK_SUMS_4(i) "+f"(c[i]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3])
#define LK_SUMS_8(i) LK_SUMS_4(i), LK_SUMS_4((i) + 4)
#define LK_SUMS_16(i) LK_SUMS_8(i), LK_SUMS_8((i) + 8)
#define LK_SUMS_32(i) LK_SUMS_16(i), LK_SUMS_16((i) + 16)
#define LK_SUMS_64(i) LK_SUMS_32(i), LK_SUMS_32((i) + 32)
#define LK_SUMS_96(i) LK_SUMS_64(i), LK_SUMS_32((i) + 64)

// `a`, `b` and `adds` are the operands behind the sums.
#define LK_MULTIPLY(columns, sums, a_place, b_place, adds_place)                          \
  asm volatile(                                                                           \
      "{\n"                                                                               \
      ".reg .pred adds;\n"                                                                \
      "setp.ne.b32 adds, %" #adds_place                                                   \
      ", 0;\n"                                                                            \
      "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" LK_PLACES_##sums \
      "}, %" #a_place ", %" #b_place                                                      \
      ", adds, 1, 1, 0, 0;\n"                                                             \
      "}\n"                                                                               \
      : LK_SUMS_##sums(0)                                                                 \
      : "l"(of_a), "l"(of_b), "r"(static_cast<int>(adds)))

template <int kColumns>
__device__ inline void MultiplyWarpgroup(float (&c)[kColumns / 2], const uint16_t* a,
                                         const uint16_t* b, bool adds) {
  static_assert(kColumns == 8 || kColumns == 16 || kColumns == 32 || kColumns == 64 ||
                kColumns == 128 || kColumns == 192);
  const uint64_t of_a = DescriptorOf(a), of_b = DescriptorOf(b);
  if constexpr (kColumns == 8) LK_MULTIPLY(8, 4, 4, 5, 6);
  if constexpr (kColumns == 16) LK_MULTIPLY(16, 8, 8, 9, 10);
  if constexpr (kColumns == 32) LK_MULTIPLY(32, 16, 16, 17, 18);
  if constexpr (kColumns == 64) LK_MULTIPLY(64, 32, 32, 33, 34);
  if constexpr (kColumns == 128) LK_MULTIPLY(128, 64, 64, 65, 66);
  if constexpr (kColumns == 192) LK_MULTIPLY(192, 96, 96, 97, 98);
}

// `a`, `b` and `adds` are as above; the last 1 says that B is transposed.
#define LK_ADD_TRANSPOSED(columns, sums, a0, a1, a2, a3, b_place)                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 {" LK_PLACES_##sums \
               "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_place ", 1, 1, 1, 1;\n"         \
               : LK_SUMS_##sums(0)                                                                 \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(of_b))

template <int kColumns>
__device__ inline void AddWarpgroupTransposed(float (&c)[kColumns / 2], const uint32_t (&a)[4],
                                              const uint16_t* b, int64_t stride) {
  static_assert(kColumns == 64 || kColumns == 128);
  const uint64_t of_b = DescriptorOf(b, static_cast<uint64_t>(stride) * sizeof(uint16_t));
  if constexpr (kColumns == 64) LK_ADD_TRANSPOSED(64, 32, 32, 33, 34, 35, 36);
  if constexpr (kColumns == 128) LK_ADD_TRANSPOSED(128, 64, 64, 65, 66, 67, 68);
}

#undef LK_ADD_TRANSPOSED
#undef LK_MULTIPLY
#undef LK_PLACES_4
#undef LK_PLACES_8
#undef LK_PLACES_16
#undef LK_PLACES_32
#undef LK_PLACES_64
#undef LK_PLACES_96
#undef LK_SUMS_4
#undef LK_SUMS_8
#undef LK_SUMS_16
#undef LK_SUMS_32
#undef LK_SUMS_64
#undef LK_SUMS_96

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_WARPGROUP_H_
