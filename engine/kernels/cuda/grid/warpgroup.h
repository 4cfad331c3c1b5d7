#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_WARPGROUP_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_WARPGROUP_H_

// Products of matrices in shared memory by four warps, in bf16 with fp32 sums (PTX ISA,
// "Asynchronous warpgroup level matrix instructions"). Devices of compute capability 9.0 alone have
// them, and nvcc takes them for sm_90a alone.
//
// A tile is some rows (a multiple of 8) of 64 numbers, 128 bytes a row, and begins at a multiple of
// 1,024 bytes. The eight pieces of 16 bytes of row r stand in the order of their number xor r % 8
// (SwizzledPiece), which the ISA calls 128-byte swizzle.
//
//   template <int kColumns>
//   void MultiplyWarpgroup(float (&c)[kColumns / 2], const uint16_t* a, const uint16_t* b, bool adds)
//     begins C [64, kColumns] = A B^T, or C += that, over 16 numbers of the rows of A (64 rows) and B
//     (kColumns rows: 8, 16, 32, 64, 128 or 192). a and b are tiles, plus the first number's place in
//     a row, 0, 16, 32 or 48. Thread 32 w + 4 g + t of the four warps has in c[4 i + j] row 16 w + g
//     (j < 2) or 16 w + g + 8, column 8 i + 2 t + j % 2.
//   void BeginProducts() stands before the first product after c was written.
//   void CommitProducts() ends a group of products.
//   template <int n> void WaitProducts() waits for all but the last n groups. Until then nobody may
//     touch c or change the tiles.
//   void ShowTiles() stands between a thread's writes of tiles (copies it has waited for too) and
//     the barrier before their products.

#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey {

__device__ inline int SwizzledPiece(int row, int piece) { return piece ^ (row % 8); }

}  // namespace lowkey

#ifdef __CUDACC__
#include "engine/kernels/cuda/grid/native_warpgroup.h"
#else
#include "engine/kernels/cuda/emulated/warpgroup.h"
#endif

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_WARPGROUP_H_
