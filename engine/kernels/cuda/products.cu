#include "engine/kernels/cuda/grid.h"
#include "engine/kernels/cuda/products.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 4;  // of a warp

struct PlainArgs {
  const void* weight = nullptr;
  int64_t n_out = 0, n_in = 0;
  const void* x = nullptr;
  int64_t ld_x = 0, n_rows = 0;
  float* y = nullptr;
  int64_t ld_y = 0;
  const float* bias = nullptr;
  GemmArgs::Into into = GemmArgs::Into::kOverwrite;
};

// Each lane sums every 32nd product, then the lanes are summed: an order that knows nothing of the
// other rows. Warps take columns of the same rows first.
template <typename T>
__global__ void PlainProductKernel(PlainArgs a) {
  const int64_t column_blocks = (a.n_out + kWarps - 1) / kWarps;
  const int64_t column = blockIdx.x % column_blocks * kWarps + threadIdx.x / kWarp;
  const int64_t first_row = blockIdx.x / column_blocks * kRows;
  if (column >= a.n_out) return;
  const int lane = threadIdx.x % kWarp;
  const T* w = static_cast<const T*>(a.weight) + column * a.n_in;
  const T* x[kRows];
  float sums[kRows] = {};
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = first_row + r < a.n_rows ? first_row + r : first_row;
    x[r] = static_cast<const T*>(a.x) + row * a.ld_x;
  }
  for (int64_t k = lane; k < a.n_in; k += kWarp) {
    const float weight = ToFloat(w[k]);
    for (int r = 0; r < kRows; ++r) sums[r] += ToFloat(x[r][k]) * weight;
  }
  for (int r = 0; r < kRows; ++r) {
    float sum = WarpSum(sums[r]);
    if (lane != 0 || first_row + r >= a.n_rows) continue;
    if (a.bias != nullptr) sum += a.bias[column];
    float& y = a.y[(first_row + r) * a.ld_y + column];
    y = a.into == GemmArgs::Into::kAccumulate ? y + sum : sum;
  }
}

}  // namespace

void MultiplyPlainly(Device& device, const ProductArgs& args) {
  const DeviceWeight& w = *args.weight;
  const PlainArgs plain{w.data(),    w.n_out(), w.n_in(),  args.x,    args.ld_x,
                        args.n_rows, args.y,    args.ld_y, args.bias, args.into};
  const LaunchShape shape{
      .blocks_x = (w.n_out() + kWarps - 1) / kWarps * ((args.n_rows + kRows - 1) / kRows),
      .threads = kThreads};
  const auto kernel =
      w.type() == StorageType::kFloat32 ? PlainProductKernel<float> : PlainProductKernel<uint16_t>;
  Launch(device, kernel, shape, plain);
}

}  // namespace lowkey
