#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_

#include "engine/kernels/device/device.h"

namespace lowkey {

// Computes Device::Multiply by a kernel that takes any shape and alignment. One warp computes a
// column of four rows, so that the weight is read once per four rows.
void MultiplyPlainly(Device& device, const ProductArgs& args);

// Computes Device::Multiply by tensor cores. TilesTake accepts weights of bf16 or 8 bits, and rows
// whose addresses and lengths are multiples of 16 bytes. A row's bits depend on the row alone.
void MultiplyByTiles(Device& device, const ProductArgs& args);
bool TilesTake(const ProductArgs& args);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
