#include "engine/kernels/cuda/launches.h"

namespace lowkey {

const DeviceKernels& CudaKernels() {
  static constexpr DeviceKernels kKernels = {
      .embed = EmbedOnDevice,
      .rms_norm = RmsNormOnDevice,
      .angles = AnglesOnDevice,
      .rotate = RotateOnDevice,
      .gated = GatedOnDevice,
      .round = RoundOnDevice,

      .taylor_write = TaylorWriteOnDevice,
      .taylor_fold = TaylorFoldOnDevice,
      .taylor_read_state = TaylorReadStateOnDevice,
      .taylor_read_pages = TaylorReadPagesOnDevice,
      .taylor_finish = TaylorFinishOnDevice,

      .write_kv = WriteKvOnDevice,
      .close_pages = ClosePagesOnDevice,
      .attend = AttendOnDevice,
      .join_parts = JoinPartsOnDevice,

      .slice_write = SliceWriteOnDevice,
      .slice_align = SliceAlignOnDevice,
      .slice_attend = SliceAttendOnDevice,

      .atp_compress = AtpCompressOnDevice,
      .atp_merge = AtpMergeOnDevice,
      .atp_attend = AtpAttendOnDevice,
      .atp_score = AtpScoreOnDevice,
      .atp_choose = AtpChooseOnDevice,
      .atp_combine = AtpCombineOnDevice,

      .sample = SampleOnDevice,
      .take_drawn = TakeDrawnOnDevice,
      .count_drawn = CountDrawnOnDevice,
  };
  return kKernels;
}

}  // namespace lowkey
