#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_SHARED_MEMORY_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_SHARED_MEMORY_H_

#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// Returns the bytes of shared memory that a block may have: 163 KiB on an A100, 227 on Hopper and
// later data center devices, 99 on the others.
int64_t MostSharedBytes(const Device& device);

namespace emulated {
// Sets MostSharedBytes from now on, which begins as 227 KiB; a block with more ends the process.
void LimitShared(int64_t bytes);
}  // namespace emulated

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_SHARED_MEMORY_H_
