#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ROWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ROWS_H_

#include "engine/kernels/device/kernels.h"

namespace lowkey {

// Functions of DeviceKernels that launch the kernels of rows.cu.
void EmbedOnDevice(Device& device, const EmbedArgs& args);
void RmsNormOnDevice(Device& device, const DeviceNormArgs& args);
void AnglesOnDevice(Device& device, const AnglesArgs& args);
void RotateOnDevice(Device& device, const RotateArgs& args);
void GatedOnDevice(Device& device, const GatedArgs& args);
void RoundOnDevice(Device& device, const RoundArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ROWS_H_
