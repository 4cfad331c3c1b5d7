#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_LAUNCH_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_LAUNCH_H_

#include "engine/kernels/device/atp.h"

namespace lowkey {

// Functions of DeviceKernels that launch the kernels of this folder.
void AtpWriteOnDevice(Device& device, const AtpWriteArgs& args);
void AtpCompressOnDevice(Device& device, const AtpCompressArgs& args);
void AtpMergeOnDevice(Device& device, const AtpCompressArgs& args);
void AtpAttendOnDevice(Device& device, const AtpAttendArgs& args);
void AtpScoreOnDevice(Device& device, const AtpScoreArgs& args);
void AtpChooseOnDevice(Device& device, const AtpChooseArgs& args);
void AtpCombineOnDevice(Device& device, const AtpCombineArgs& args);

// Computes from AtpCompressArgs::m its leading left singular vectors as rows, in `basis` where a
// task has n <= n_cols, else in `image`, and `projected`, those vectors times m.
void AtpFindBasis(Device& device, const AtpCompressArgs& args);

// Store the results of AtpFindBasis in their blocks: U, K' and V' and the kept tokens; or K' and V'
// alone.
void AtpStore(Device& device, const AtpCompressArgs& args);
void AtpStorePrincipal(Device& device, const AtpCompressArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_LAUNCH_H_
