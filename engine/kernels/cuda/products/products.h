#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_

#include "absl/functional/function_ref.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {

// The arguments of both kinds of kernels: ProductArgs with its weight's parts.
struct ProductKernelArgs {
  const std::byte* weight = nullptr;  // row j at j * row_bytes
  int64_t row_bytes = 0;
  const uint16_t* scales = nullptr;  // of 8 bits: bf16 [ScalesOfRow, ld_scales]
  int64_t ld_scales = 0;             // a multiple of 8
  int64_t n_out = 0, n_in = 0;
  const void* x = nullptr;
  int64_t ld_x = 0, n_rows = 0;
  float* y = nullptr;
  int64_t ld_y = 0;
  const float* bias = nullptr;
  GemmArgs::Into into = GemmArgs::Into::kOverwrite;
  uint16_t* rounded = nullptr;  // written instead of y unless nullptr
  uint16_t* gated = nullptr;    // GatedProductArgs::out, written instead of y unless nullptr
  int64_t n_channels = 0;
};

inline ProductKernelArgs KernelArgsOf(const ProductArgs& args) {
  const DeviceWeight& w = *args.weight;
  const int64_t row_bytes = w.n_in() * StorageBytes(w.type());
  ProductKernelArgs a{w.data(),  row_bytes, nullptr,   0,           w.n_out(),
                      w.n_in(),  args.x,    args.ld_x, args.n_rows, args.y,
                      args.ld_y, args.bias, args.into, args.rounded};
  if (!IsNarrow(w.type())) return a;
  const NarrowLayout layout{w.type(), w.n_out(), w.n_in()};
  a.row_bytes = layout.row_bytes();
  a.scales = reinterpret_cast<const uint16_t*>(w.data() + layout.scales_at());
  a.ld_scales = layout.ld_scales();
  return a;
}

inline ProductKernelArgs KernelArgsOf(const GatedProductArgs& args) {
  ProductKernelArgs a = KernelArgsOf(args.product);
  a.gated = static_cast<uint16_t*>(args.out);
  a.n_channels = args.n_channels;
  return a;
}

// Computes Device::Multiply by a kernel that takes any shape and alignment. One warp computes a
// column of four rows, so that the weight is read once per four rows.
void MultiplyPlainly(Device& device, const ProductArgs& args);

// Computes Device::Multiply by tensor cores. TilesTake accepts weights of bf16 or 8 bits, and rows
// whose addresses and lengths are multiples of 16 bytes. A row's bits depend on the row alone.
void MultiplyByTiles(Device& device, const ProductArgs& args);
bool TilesTake(const ProductArgs& args);
// Computes Device::Multiply for up to kMostOrderedRows rows with weights of bf16 that TilesTake
// accepts. Sums follow the order of k (ordered_products.cu).
inline constexpr int64_t kMostOrderedRows = 16;
void MultiplyInOrder(Device& device, const ProductArgs& args);
// Computes Device::MultiplyGated, without writing y, for what TilesTake accepts.
void MultiplyGatedByTiles(Device& device, const GatedProductArgs& args);

// Memory of a device in which thread blocks leave sums for each other. Counters begin as zeros and
// are zeros between two products.
struct WarpgroupSpace {
  float* sums = nullptr;
  int64_t n_sums = 0;
  unsigned* counters = nullptr;
  int64_t n_counters = 0;
};

// Compute Device::Multiply and MultiplyGated by warpgroups (grid/warpgroup.h), on a device that has
// these, for weights of bf16 that TilesTake accepts. A row's bits depend on the row alone; they are
// others than those of MultiplyByTiles.
void MultiplyByWarpgroups(Device& device, const ProductArgs& args, const WarpgroupSpace& space);
void MultiplyGatedByWarpgroups(Device& device, const GatedProductArgs& args,
                               const WarpgroupSpace& space);

// Computes Device::MultiplyGated by `multiply`, which queues args.product, and another kernel. The
// product's results are in bf16 between them where args.product.rounded is set.
void GateAfter(Device& device, const GatedProductArgs& args,
               absl::FunctionRef<void(const ProductArgs&)> multiply);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_PRODUCTS_H_
