#ifndef LOWKEY_ENGINE_KERNELS_CUDA_CUDA_DEVICE_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_CUDA_DEVICE_H_

#include "engine/kernels/cuda/grid/launch_shape.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Queues a kernel of one argument, whose bytes are at `args`. An error goes to the device's status.
void LaunchNative(Device& device, const void* kernel, const LaunchShape& shape, const void* args);

// The table of the kernels in this folder (device_kernels.cc).
const DeviceKernels& CudaKernels();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_CUDA_DEVICE_H_
