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
//   void MultiplyWarpgroup(float (&c)[kColumns / 2], const uint16_t* a, const uint16_t* b,
//                          bool adds)
//     begins C [64, kColumns] = A B^T, or C += that, over 16 numbers of the rows of A (64 rows) and
//     B (kColumns rows: 8, 16, 32, 64, 128 or 192). a and b are tiles, plus the first number's
//     place in a row, 0, 16, 32 or 48. Thread 32 w + 4 g + t of the four warps has in c[4 i + j]
//     row 16 w + g (j < 2) or 16 w + g + 8, column 8 i + 2 t + j % 2.
//   template <int kColumns>
//   void AddWarpgroupTransposed(float (&c)[kColumns / 2], const uint32_t (&a)[4],
//                               const uint16_t* b, int64_t stride)
//     begins C [64, kColumns] += A B over 16 rows of B, for 64 or 128 columns. Of A each warp has
//     its 16 rows in registers, as for MultiplyTiles (mma.h). b is row 0 or another multiple of 16
//     of a tile of 64 columns; the tile of the next 64 columns begins `stride` numbers behind it.
//   template <typename T, int n> void PinRegisters(T (&x)[n]) keeps the compiler from moving reads
//     and writes of sums, or of A's registers, across it: it stands before BeginProducts and behind
//     the WaitProducts after which they are used.
//   void BeginProducts() stands before the first product after c or a register of A was written.
//   void CommitProducts() ends a group of products.
//   template <int n> void WaitProducts() waits for all but the last n groups. Until then nobody may
//     touch c, or change A's registers or the tiles.
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
