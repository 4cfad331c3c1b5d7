#ifndef LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_TAYLORSHIFT_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_TAYLORSHIFT_H_

#include "engine/kernels/device/taylorshift.h"

namespace lowkey {

// Functions of DeviceKernels that launch the kernels of this folder.
void TaylorWriteOnDevice(Device& device, const TaylorWriteArgs& args);
void TaylorFoldOnDevice(Device& device, const TaylorFoldArgs& args);
void TaylorReadStateOnDevice(Device& device, const TaylorReadArgs& args);
void TaylorReadPagesOnDevice(Device& device, const TaylorReadArgs& args);
void TaylorFinishOnDevice(Device& device, const TaylorFinishArgs& args);

// These run on tensor cores, where TaylorHasTiles.
void TaylorFoldWithTiles(Device& device, const TaylorFoldArgs& args);
void TaylorReadStateWithTiles(Device& device, const TaylorReadArgs& args);
void TaylorReadPagesWithTiles(Device& device, const TaylorReadArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_TAYLORSHIFT_TAYLORSHIFT_H_
