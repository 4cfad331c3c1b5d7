// Kernels over rows of activations. One thread block computes a row, so that the row's bits depend
// on nothing else.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/products/gate.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;

LaunchShape RowBlocks(int64_t n_rows) { return {.blocks_x = n_rows, .threads = kThreads}; }

template <typename T>
__global__ void EmbedKernel(EmbedArgs a) {
  const int64_t row = blockIdx.x;
  const T* from = static_cast<const T*>(a.table) + a.tokens[row] * a.dim;
  for (int64_t j = threadIdx.x; j < a.dim; j += blockDim.x) {
    a.x[row * a.dim + j] = ToFloat(from[j]);
  }
}

template <typename T>
__global__ void RmsNormKernel(DeviceNormArgs a) {
  __shared__ float scratch[kWarp];
  const int64_t row = blockIdx.x;
  const float* x = a.x + (a.rows == nullptr ? row : a.rows[row]) * a.dim;
  float squares = 0;
  for (int64_t j = threadIdx.x; j < a.dim; j += blockDim.x) squares += x[j] * x[j];
  const float mean = BlockSum(squares, scratch) / static_cast<float>(a.dim);
  const float scale = 1.0f / sqrtf(mean + a.eps);
  T* out = static_cast<T*>(a.out) + row * a.dim;
  for (int64_t j = threadIdx.x; j < a.dim; j += blockDim.x) {
    const float y = x[j] * scale * a.weight[j];
    out[j] = FromFloat<T>(y);
    if (a.also_floats != nullptr) a.also_floats[row * a.dim + j] = y;
  }
}

__global__ void AnglesKernel(AnglesArgs a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.n_rows * a.half) return;
  const double angle = a.positions[i / a.half] * a.inverse_frequencies[i % a.half];
  a.cos[i] = static_cast<float>(cos(angle));
  a.sin[i] = static_cast<float>(sin(angle));
}

__host__ __device__ int64_t HeadsPerRow(const RotateArgs& a) {
  return a.n_heads + a.n_kv_heads + (a.value_slices == nullptr ? 0 : a.n_kv_heads);
}

// One warp computes one head.
__global__ void RotateKernel(RotateArgs a) {
  const int64_t n_heads = HeadsPerRow(a);
  const int64_t task = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (task >= a.n_rows * n_heads) return;
  const int64_t row = task / n_heads, head = task % n_heads, half = a.head_dim / 2;
  const int lane = threadIdx.x % kWarp;
  float* x = a.qkv + row * a.ld + head * a.head_dim;
  const int64_t first_value = a.n_heads + a.n_kv_heads;
  if (head >= first_value) {
    const float* from = a.value_slices + row * a.ld_slices + (head - first_value) * a.head_dim;
    for (int64_t j = lane; j < a.head_dim; j += kWarp) x[j] = from[j];
    return;
  }
  const float* from = x;
  if (head >= a.n_heads && a.key_slices != nullptr) {
    from = a.key_slices + row * a.ld_slices + (head - a.n_heads) * a.head_dim;
  }
  const float* norm = head < a.n_heads ? a.q_norm : a.k_norm;
  float scale = 1;
  if (norm != nullptr) {
    float squares = 0;
    for (int64_t j = lane; j < a.head_dim; j += kWarp) squares += from[j] * from[j];
    scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(a.head_dim) + a.eps);
  }
  for (int64_t j = lane; j < half; j += kWarp) {
    const float c = a.cos[row * half + j], s = a.sin[row * half + j];
    float first = from[j], second = from[j + half];
    if (norm != nullptr) {
      first *= scale * norm[j];
      second *= scale * norm[j + half];
    }
    x[j] = first * c - second * s;
    x[j + half] = second * c + first * s;
  }
}

template <typename T>
__global__ void GatedKernel(GatedArgs a) {
  const int64_t row = blockIdx.x, j = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (j >= a.n) return;
  const float* gate = a.gate_up + row * a.ld + j / kGatedGroup * 2 * kGatedGroup + j % kGatedGroup;
  static_cast<T*>(a.out)[row * a.n + j] = FromFloat<T>(SiluTimes(gate[0], gate[kGatedGroup]));
}

template <typename T>
__global__ void RoundKernel(RoundArgs a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < a.n) static_cast<T*>(a.out)[i] = FromFloat<T>(a.x[i]);
}

LaunchShape Elements(int64_t n) {
  return {.blocks_x = (n + kThreads - 1) / kThreads, .threads = kThreads};
}

// Returns the kernel's instance for an element type.
template <typename Kernel>
Kernel ForType(StorageType type, Kernel f32, Kernel bf16) {
  return type == StorageType::kFloat32 ? f32 : bf16;
}

}  // namespace

void EmbedOnDevice(Device& device, const EmbedArgs& args) {
  Launch(device, ForType(args.table_type, EmbedKernel<float>, EmbedKernel<uint16_t>),
         RowBlocks(args.n_rows), args);
}

void RmsNormOnDevice(Device& device, const DeviceNormArgs& args) {
  Launch(device, ForType(args.out_type, RmsNormKernel<float>, RmsNormKernel<uint16_t>),
         RowBlocks(args.n_rows), args);
}

void AnglesOnDevice(Device& device, const AnglesArgs& args) {
  Launch(device, AnglesKernel, Elements(args.n_rows * args.half), args);
}

void RotateOnDevice(Device& device, const RotateArgs& args) {
  Launch(device, RotateKernel, Elements(args.n_rows * HeadsPerRow(args) * kWarp), args);
}

void GatedOnDevice(Device& device, const GatedArgs& args) {
  Launch(device, ForType(args.out_type, GatedKernel<float>, GatedKernel<uint16_t>),
         {.blocks_x = args.n_rows,
          .blocks_y = (args.n + kThreads - 1) / kThreads,
          .threads = kThreads},
         args);
}

void RoundOnDevice(Device& device, const RoundArgs& args) {
  Launch(device, ForType(args.out_type, RoundKernel<float>, RoundKernel<uint16_t>),
         Elements(args.n), args);
}

}  // namespace lowkey
