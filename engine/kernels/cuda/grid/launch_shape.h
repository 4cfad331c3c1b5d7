#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_LAUNCH_SHAPE_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_LAUNCH_SHAPE_H_

#include <cstdint>

namespace lowkey {

inline constexpr int kWarp = 32;

// The blocks of a grid, the threads of a block, and the bytes of shared memory of a block beside
// those that the kernel declares.
struct LaunchShape {
  int64_t blocks_x = 1;
  int64_t blocks_y = 1;  // at most 65,535
  int64_t blocks_z = 1;  // at most 65,535
  int threads = 128;     // a multiple of 32, at most 1,024
  int64_t shared_bytes = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_LAUNCH_SHAPE_H_
