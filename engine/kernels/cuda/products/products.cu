#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/cuda/products/rows.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 4;  // rows of a warp

// A weight's row of wide numbers. X is the type of the rows that it is multiplied with.
template <typename T>
struct WideWeightRow {
  using X = T;
  const T* row;
  __device__ WideWeightRow(const ProductKernelArgs& a, int64_t column)
      : row(reinterpret_cast<const T*>(a.weight + column * a.row_bytes)) {}
  __device__ float operator[](int64_t k) const { return ToFloat(row[k]); }
};

template <StorageType kType>
struct NarrowWeightRow {
  using X = uint16_t;
  const uint8_t* codes;
  const uint16_t* scales;
  int64_t ld_scales;
  __device__ NarrowWeightRow(const ProductKernelArgs& a, int64_t column)
      : codes(reinterpret_cast<const uint8_t*>(a.weight + column * a.row_bytes)),
        scales(a.scales + column),
        ld_scales(a.ld_scales) {}
  __device__ float operator[](int64_t k) const {
    const uint32_t code = codes[NarrowPlace(k)];
    if constexpr (kType == StorageType::kInt8) {
      return static_cast<float>(static_cast<int8_t>(code)) *
             BFloat16ToFloat(scales[k / kNarrowBlock * ld_scales]);
    } else {
      // The code's bits in a float's places are the number times 2^-120, subnormals included.
      const float small = __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20);
      return small * 0x1p120f * BFloat16ToFloat(*scales);
    }
  }
};

// Each lane sums every 32nd product, then the lanes are summed: this order does not depend on the
// other rows. Warps take columns of the same rows first.
template <typename Row>
__global__ void PlainProductKernel(ProductKernelArgs a) {
  using T = typename Row::X;
  const int64_t column_blocks = (a.n_out + kWarps - 1) / kWarps;
  const int64_t column = blockIdx.x % column_blocks * kWarps + threadIdx.x / kWarp;
  const int64_t first_row = blockIdx.x / column_blocks * kRows;
  if (column >= a.n_out) return;
  const int lane = threadIdx.x % kWarp;
  const Row w(a, column);
  const T* x[kRows];
  float sums[kRows] = {};
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r < a.n_rows ? first_row + r : first_row;
    x[r] = static_cast<const T*>(a.x) + row * a.ld_x;
  }
  for (int64_t k = lane; k < a.n_in; k += kWarp) {
    const float weight = w[k];
    for (int r = 0; r < kRows; ++r) sums[r] += ToFloat(x[r][k]) * weight;
  }
  for (int r = 0; r < kRows; ++r) {
    float sum = WarpSum(sums[r]);
    if (lane != 0 || first_row + r >= a.n_rows) continue;
    if (a.bias != nullptr) sum += a.bias[column];
    StoreNumber(a, first_row + r, column, sum);
  }
}

}  // namespace

void MultiplyPlainly(Device& device, const ProductArgs& args) {
  const DeviceWeight& w = *args.weight;
  const LaunchShape shape{
      .blocks_x = (w.n_out() + kWarps - 1) / kWarps * ((args.n_rows + kRows - 1) / kRows),
      .threads = kThreads};
  const auto kernel =
      w.type() == StorageType::kFloat32    ? PlainProductKernel<WideWeightRow<float>>
      : w.type() == StorageType::kBFloat16 ? PlainProductKernel<WideWeightRow<uint16_t>>
      : w.type() == StorageType::kInt8     ? PlainProductKernel<NarrowWeightRow<StorageType::kInt8>>
                                       : PlainProductKernel<NarrowWeightRow<StorageType::kFloat8>>;
  Launch(device, kernel, shape, KernelArgsOf(args));
}

void GateAfter(Device& device, const GatedProductArgs& args,
               absl::FunctionRef<void(const ProductArgs&)> multiply) {
  const ProductArgs& product = args.product;
  multiply(product);
  const bool is_rounded = product.rounded != nullptr;
  device.kernels().gated(
      device, {is_rounded ? static_cast<const void*>(product.rounded) : product.y,
               is_rounded ? StorageType::kBFloat16 : StorageType::kFloat32, product.ld_y,
               args.n_channels, product.n_rows, args.out, RowTypeOf(product.weight->type())});
}

}  // namespace lowkey
