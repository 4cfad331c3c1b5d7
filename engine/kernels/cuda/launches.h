#ifndef LOWKEY_ENGINE_KERNELS_CUDA_LAUNCHES_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_LAUNCHES_H_

#include "engine/kernels/device/kernels.h"

namespace lowkey {

// The table of the kernels in this folder (device_kernels.cc).
const DeviceKernels& CudaKernels();

// Functions of DeviceKernels. Each is defined in the file of the kernels that it launches.
void EmbedOnDevice(Device& device, const EmbedArgs& args);
void RmsNormOnDevice(Device& device, const DeviceNormArgs& args);
void AnglesOnDevice(Device& device, const AnglesArgs& args);
void RotateOnDevice(Device& device, const RotateArgs& args);
void GatedOnDevice(Device& device, const GatedArgs& args);
void RoundOnDevice(Device& device, const RoundArgs& args);

void TaylorWriteOnDevice(Device& device, const TaylorWriteArgs& args);
void TaylorFoldOnDevice(Device& device, const TaylorFoldArgs& args);
void TaylorReadStateOnDevice(Device& device, const TaylorReadArgs& args);
void TaylorReadPagesOnDevice(Device& device, const TaylorReadArgs& args);
void TaylorFinishOnDevice(Device& device, const TaylorFinishArgs& args);

void WriteKvOnDevice(Device& device, const WriteKvArgs& args);
void ClosePagesOnDevice(Device& device, const ClosePagesArgs& args);
void AttendOnDevice(Device& device, const AttendArgs& args);
void JoinPartsOnDevice(Device& device, const AttendArgs& args);

void SliceWriteOnDevice(Device& device, const SliceWriteArgs& args);
void SliceAlignOnDevice(Device& device, const SliceAlignArgs& args);
void SliceAttendOnDevice(Device& device, const SliceAttendArgs& args);

void AtpCompressOnDevice(Device& device, const AtpCompressArgs& args);
void AtpMergeOnDevice(Device& device, const AtpCompressArgs& args);
void AtpAttendOnDevice(Device& device, const AtpAttendArgs& args);
void AtpScoreOnDevice(Device& device, const AtpScoreArgs& args);
void AtpChooseOnDevice(Device& device, const AtpChooseArgs& args);
void AtpCombineOnDevice(Device& device, const AtpCombineArgs& args);

void SampleOnDevice(Device& device, const SamplingArgs& args);
void TakeDrawnOnDevice(Device& device, const TakeDrawnArgs& args);
void CountDrawnOnDevice(Device& device, const CountDrawnArgs& args);

// The TaylorOnDevice functions of these names call these on tensor cores, where TaylorHasTiles.
void TaylorFoldWithTiles(Device& device, const TaylorFoldArgs& args);
void TaylorReadStateWithTiles(Device& device, const TaylorReadArgs& args);
void TaylorReadPagesWithTiles(Device& device, const TaylorReadArgs& args);

// AttendOnDevice calls the first three where HasTensorTiles: the second for closed pages, the third
// for rows of a prompt where Device::AttendsByWarpgroups; and the last elsewhere. The second also
// takes pages that are not closed: slower, in less shared memory.
void AttendWithTensorTiles(Device& device, const AttendArgs& args);
void AttendClosedWithTensorTiles(Device& device, const AttendArgs& args);
void AttendWithWarpgroups(Device& device, const AttendArgs& args);  // heads of 64 and 128
void AttendPlainly(Device& device, const AttendArgs& args);

// Computes from AtpCompressArgs::m its leading left singular vectors as rows, in `basis` where a
// task has n <= n_cols, else in `image`, and `projected`, those vectors times m.
void AtpFindBasis(Device& device, const AtpCompressArgs& args);

// Store the results of AtpFindBasis in their blocks: U, K' and V' and the kept tokens; or K' and V'
// alone.
void AtpStore(Device& device, const AtpCompressArgs& args);
void AtpStorePrincipal(Device& device, const AtpCompressArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_LAUNCHES_H_
