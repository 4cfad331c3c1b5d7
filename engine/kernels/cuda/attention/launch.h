#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_LAUNCH_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_LAUNCH_H_

#include "engine/kernels/device/attention.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {

// Functions of DeviceKernels that launch the kernels of this folder.
void WriteKvOnDevice(Device& device, const WriteKvArgs& args);
void ClosePagesOnDevice(Device& device, const ClosePagesArgs& args);
void AttendOnDevice(Device& device, const AttendArgs& args);
void JoinPartsOnDevice(Device& device, const AttendArgs& args);

// AttendOnDevice calls the first two where HasTensorTiles, the second for closed pages, and the
// last elsewhere. The second also takes pages that are not closed: slower, in less shared memory.
void AttendWithTensorTiles(Device& device, const AttendArgs& args);
void AttendClosedWithTensorTiles(Device& device, const AttendArgs& args);
void AttendPlainly(Device& device, const AttendArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATTENTION_LAUNCH_H_
