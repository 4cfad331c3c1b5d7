// Kernels over rows of activations. One thread block computes a row, so that the row's bits depend
// on nothing else.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/products/gate.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPageTokens = 64;

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

// The values too where they move, from slices or into pages.
__host__ __device__ int64_t HeadsPerRow(const RotateArgs& a) {
  const bool moves_values = a.value_slices != nullptr || a.pages.slots != nullptr;
  return a.n_heads + a.n_kv_heads + (moves_values ? a.n_kv_heads : 0);
}

__device__ int64_t FirstValue(const RotateArgs& a) { return a.n_heads + a.n_kv_heads; }

// Norms and rotates a query or key of the row. Lane i of a warp has every 32nd pair from i on.
template <typename T>
__device__ void RotateHead(const RotateArgs& a, int64_t row, int64_t head, const float* from,
                           T* to) {
  const int lane = threadIdx.x % kWarp;
  const int64_t half = a.head_dim / 2;
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
    to[j] = FromFloat<T>(first * c - second * s);
    to[j + half] = FromFloat<T>(second * c + first * s);
  }
}

template <typename T>
__device__ void CopyHead(const float* from, int64_t head_dim, T* to) {
  for (int64_t j = threadIdx.x % kWarp; j < head_dim; j += kWarp) to[j] = FromFloat<T>(from[j]);
}

// Returns the warp's task in tasks numbered head by head: one warp computes one head of one row.
struct HeadTask {
  int64_t row, head;
};
__device__ HeadTask TaskOf(int64_t n_heads) {
  const int64_t task = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  return {task / n_heads, task % n_heads};
}

__global__ void RotateKernel(RotateArgs a) {
  const auto [row, head] = TaskOf(HeadsPerRow(a));
  if (row >= a.n_rows) return;
  float* x = a.qkv + row * a.ld + head * a.head_dim;
  if (head >= FirstValue(a)) {
    const int64_t slice = (head - FirstValue(a)) * a.head_dim;
    return CopyHead(a.value_slices + row * a.ld_slices + slice, a.head_dim, x);
  }
  const float* from = x;
  if (head >= a.n_heads && a.key_slices != nullptr) {
    from = a.key_slices + row * a.ld_slices + (head - a.n_heads) * a.head_dim;
  }
  RotateHead(a, row, head, from, x);
}

// T is the type of the pages.
template <typename T>
__global__ void RotateIntoPagesKernel(RotateArgs a) {
  const auto [number, head] = TaskOf(HeadsPerRow(a));
  if (number >= a.pages.n_slots) return;
  const CacheSlot slot = a.pages.slots[number];
  if (slot.page == nullptr) return;
  float* x = a.qkv + slot.row * a.ld + head * a.head_dim;
  if (head < a.n_heads) return RotateHead(a, slot.row, head, x, x);
  const bool is_value = head >= FirstValue(a);
  const int64_t kv_head = head - (is_value ? FirstValue(a) : a.n_heads);
  const int64_t plane = (a.layer * a.n_kv_heads + kv_head) * 2 + (is_value ? 1 : 0);
  T* to = reinterpret_cast<T*>(slot.page) + (plane * kPageTokens + slot.slot) * a.head_dim;
  if (is_value) return CopyHead(x, a.head_dim, to);
  RotateHead(a, slot.row, head, x, to);
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
  const CacheSlots& pages = args.pages;
  const int64_t n_rows = pages.slots == nullptr ? args.n_rows : pages.n_slots;
  const auto kernel = pages.slots == nullptr                      ? RotateKernel
                      : pages.cache_type == StorageType::kFloat32 ? RotateIntoPagesKernel<float>
                                                                  : RotateIntoPagesKernel<uint16_t>;
  Launch(device, kernel, Elements(n_rows * HeadsPerRow(args) * kWarp), args);
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
