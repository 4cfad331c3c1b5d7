#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_BASIS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_BASIS_H_

#include "engine/kernels/device/atp.h"

namespace lowkey {

// From AtpCompressArgs::m: its leading left singular vectors as rows, in `basis` where a task has n
// <= n_cols, else in `image`; and `projected`, those vectors times m.
void AtpFindBasis(Device& device, const AtpCompressArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_BASIS_H_
