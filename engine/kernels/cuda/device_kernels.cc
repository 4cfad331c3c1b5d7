#include "engine/kernels/cuda/atp/launch.h"
#include "engine/kernels/cuda/attention/launch.h"
#include "engine/kernels/cuda/cuda_device.h"
#include "engine/kernels/cuda/rows.h"
#include "engine/kernels/cuda/sampling/sampling.h"
#include "engine/kernels/cuda/slices/slices.h"
#include "engine/kernels/cuda/taylorshift/taylorshift.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {

const DeviceKernels& CudaKernels() {
  static const DeviceKernels kernels = [] {
    DeviceKernels k;
    k.embed = EmbedOnDevice;
    k.rms_norm = RmsNormOnDevice;
    k.angles = AnglesOnDevice;
    k.rotate = RotateOnDevice;
    k.gated = GatedOnDevice;
    k.round = RoundOnDevice;

    k.taylor_write = TaylorWriteOnDevice;
    k.taylor_fold = TaylorFoldOnDevice;
    k.taylor_read_state = TaylorReadStateOnDevice;
    k.taylor_read_pages = TaylorReadPagesOnDevice;
    k.taylor_finish = TaylorFinishOnDevice;

    k.write_kv = WriteKvOnDevice;
    k.close_pages = ClosePagesOnDevice;
    k.attend = AttendOnDevice;
    k.join_parts = JoinPartsOnDevice;
    k.slice_write = SliceWriteOnDevice;
    k.slice_align = SliceAlignOnDevice;
    k.slice_attend = SliceAttendOnDevice;

    k.atp_write = AtpWriteOnDevice;
    k.atp_compress = AtpCompressOnDevice;
    k.atp_merge = AtpMergeOnDevice;
    k.atp_attend = AtpAttendOnDevice;
    k.atp_score = AtpScoreOnDevice;
    k.atp_choose = AtpChooseOnDevice;
    k.atp_combine = AtpCombineOnDevice;

    k.sample = SampleOnDevice;
    k.take_drawn = TakeDrawnOnDevice;
    k.count_drawn = CountDrawnOnDevice;
    return k;
  }();
  return kernels;
}

}  // namespace lowkey
