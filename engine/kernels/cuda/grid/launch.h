#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_LAUNCH_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_LAUNCH_H_

#include <cstdint>

#include "engine/kernels/device/device.h"

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

// Queues a kernel of one argument, whose bytes are at `args`, on a GPU. An error goes to the
// device's status.
void LaunchNative(Device& device, const void* kernel, const LaunchShape& shape, const void* args);

namespace emulated {
// Sets the emulated devices' most_shared_bytes from now on, which begins as 227 KiB; a block with
// more ends the process.
void LimitShared(int64_t bytes);
int64_t MostSharedBytes();
}  // namespace emulated

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_LAUNCH_H_
