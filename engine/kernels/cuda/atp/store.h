#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_STORE_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_STORE_H_

#include "engine/kernels/device/atp.h"

namespace lowkey {

// What AtpFindBasis found, to its blocks: U, K' and V', tokens that are kept; or K' and V' alone.
void AtpStore(Device& device, const AtpCompressArgs& args);
void AtpStorePrincipal(Device& device, const AtpCompressArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_STORE_H_
