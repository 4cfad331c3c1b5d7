#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_MMA_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_MMA_H_

// Products of small matrices by a warp, in bf16 with fp32 sums (PTX ISA, "Matrix fragments for
// mma.m16n8k16"). Lane 4 g + t has these elements:
//   A [16, 16]: a[0] row g, a[1] row g + 8, columns 2 t and 2 t + 1; a[2] and a[3] the same rows,
//               columns 2 t + 8 and 2 t + 9
//   B [16, 8]:  b0 rows 2 t and 2 t + 1, b1 rows 2 t + 8 and 2 t + 9, column g
//   C [16, 8]:  c[0] and c[1] row g, c[2] and c[3] row g + 8, columns 2 t and 2 t + 1
// The lower half of a word is the first of its two numbers. A row of C depends on that row of A
// alone.
//
//   void MultiplyTiles(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1): C += A B
//   void LoadTiles(uint32_t (&x)[4], const void* row) loads matrices [8, 8] from shared memory.
//     Lane 8 i + j gives the address of matrix i's row j, aligned to 16 bytes; x[i] of lane 4 g + t
//     is elements 2 t and 2 t + 1 of row g.
//   void LoadTilesTransposed loads the transposes of the matrices.
//   uint32_t PackBFloat16(float low, float high) rounds to nearest, ties to even.
//   uint32_t MultiplyAddPairs(uint32_t a, uint32_t b, uint32_t c) = a b + c of both numbers, exact
//     for results that bf16 has, subnormals included.
//   float Exp2(float x) = 2^x to about 2^-22; 1 for 0, 0 for -infinity.

#include "engine/kernels/cuda/grid/grid.h"

#ifdef __CUDACC__
#include "engine/kernels/cuda/grid/native_mma.h"
#else
#include "engine/kernels/cuda/emulated/mma.h"
#endif

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_MMA_H_
