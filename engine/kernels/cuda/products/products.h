#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_

#include "engine/kernels/device/device.h"

namespace lowkey {

// Device::Multiply by a kernel that takes any shape and alignment: a warp a column of few rows. It
// reads the weight again for every four rows.
void MultiplyPlainly(Device& device, const ProductArgs& args);

// Device::Multiply by tensor cores, for what TilesTake: weights of bf16 or 8 bits, rows at
// addresses and of lengths that are multiples of 16 bytes. A row's bits are its own here by
// construction.
void MultiplyByTiles(Device& device, const ProductArgs& args);
bool TilesTake(const ProductArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
