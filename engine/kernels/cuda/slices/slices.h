#ifndef LOWKEY_ENGINE_KERNELS_CUDA_SLICES_SLICES_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_SLICES_SLICES_H_

#include "engine/kernels/device/slices.h"

namespace lowkey {

// Functions of DeviceKernels that launch the kernels of slices.cu.
void SliceWriteOnDevice(Device& device, const SliceWriteArgs& args);
void SliceAlignOnDevice(Device& device, const SliceAlignArgs& args);
void SliceAttendOnDevice(Device& device, const SliceAttendArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_SLICES_SLICES_H_
