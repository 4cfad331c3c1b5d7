#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_H_

#include "engine/kernels/device.h"

namespace lowkey {

// Device::Multiply by a kernel that takes any shape and alignment: a warp a column of few rows. It
// reads the weight again for every four rows.
void MultiplyPlainly(Device& device, const ProductArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_H_
