#include "engine/kernels/device_kernels.h"

#include "engine/kernels/cuda/cuda_device.h"
#include "engine/kernels/cuda/rows.h"

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
    return k;
  }();
  return kernels;
}

}  // namespace lowkey
