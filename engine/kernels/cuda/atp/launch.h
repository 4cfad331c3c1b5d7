#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_LAUNCH_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_LAUNCH_H_

#include "engine/kernels/device/atp.h"

namespace lowkey {

// Launchers of DeviceKernels.
void AtpWriteOnDevice(Device& device, const AtpWriteArgs& args);
void AtpCompressOnDevice(Device& device, const AtpCompressArgs& args);
void AtpMergeOnDevice(Device& device, const AtpCompressArgs& args);
void AtpAttendOnDevice(Device& device, const AtpAttendArgs& args);
void AtpScoreOnDevice(Device& device, const AtpScoreArgs& args);
void AtpChooseOnDevice(Device& device, const AtpChooseArgs& args);
void AtpCombineOnDevice(Device& device, const AtpCombineArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_LAUNCH_H_
