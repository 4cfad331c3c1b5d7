// Kernels over rows of activations. One thread block computes a row, so that the row's bits depend
// on nothing else.

#include <type_traits>

#include "engine/base/round_up.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/grid/mma.h"
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

// Some neighboring numbers, read and written as one.
template <typename T, int kWidth>
struct alignas(kWidth * sizeof(T)) Numbers {
  T x[kWidth];
};

// Reads and writes kWidth numbers at once: four where FoursTake the arguments.
template <typename T, int kWidth>
__global__ void RmsNormKernel(DeviceNormArgs a) {
  using Floats = Numbers<float, kWidth>;
  __shared__ float scratch[kWarp];
  const int64_t row = blockIdx.x, n = a.dim / kWidth;
  const auto* x =
      reinterpret_cast<const Floats*>(a.x + (a.rows == nullptr ? row : a.rows[row]) * a.dim);
  const auto* weights = reinterpret_cast<const Floats*>(a.weight);
  float squares = 0;
#pragma unroll 4
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
    const Floats numbers = x[j];
#pragma unroll
    for (const float v : numbers.x) squares += v * v;
  }
  const float mean = BlockSum(squares, scratch) / static_cast<float>(a.dim);
  const float scale = 1.0f / sqrtf(mean + a.eps);
  auto* out = reinterpret_cast<Numbers<T, kWidth>*>(static_cast<T*>(a.out) + row * a.dim);
  auto* also = reinterpret_cast<Floats*>(a.also_floats);
#pragma unroll 4
  for (int64_t j = threadIdx.x; j < n; j += blockDim.x) {
    const Floats numbers = x[j], weight = weights[j];
    Floats y;
    Numbers<T, kWidth> rounded;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      y.x[i] = numbers.x[i] * scale * weight.x[i];
      rounded.x[i] = FromFloat<T>(y.x[i]);
    }
    out[j] = rounded;
    if (also != nullptr) also[row * n + j] = y;
  }
}

bool FoursTake(const DeviceNormArgs& args) {
  const auto is_aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return args.dim % 4 == 0 && is_aligned(args.x) && is_aligned(args.weight) &&
         is_aligned(args.out) && is_aligned(args.also_floats);
}

__global__ void AnglesKernel(AnglesArgs a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= a.n_rows * a.half) return;
  const double angle = a.positions[i / a.half] * a.inverse_frequencies[i % a.half];
  a.cos[i] = static_cast<float>(cos(angle));
  a.sin[i] = static_cast<float>(sin(angle));
}

// The values too where they move, head_dim numbers at a time.
__host__ __device__ int64_t HeadsPerRow(const RotateArgs& a) {
  const bool moves_values =
      a.value_slices != nullptr || a.pages.slots != nullptr || a.rounded != nullptr;
  const int64_t n_moved = moves_values ? a.n_values : 0;
  return a.n_heads + a.n_kv_heads + (n_moved + a.head_dim - 1) / a.head_dim;
}

__device__ int64_t FirstValue(const RotateArgs& a) { return a.n_heads + a.n_kv_heads; }

// Returns where q, k and v are read, from number `at` on.
template <typename From>
__device__ const From* QkvAt(const RotateArgs& a, int64_t at) {
  if constexpr (std::is_same_v<From, float>) {
    return a.qkv + at;
  } else {
    return a.rounded + at;
  }
}

// Norms and rotates a query or key of the row. Lane i of a warp has every 32nd pair from i on.
template <typename From, typename T>
__device__ void RotateHead(const RotateArgs& a, int64_t row, int64_t head, const From* from,
                           T* to) {
  const int lane = threadIdx.x % kWarp;
  const int64_t half = a.head_dim / 2;
  const float* norm = head < a.n_heads ? a.q_norm : a.k_norm;
  float scale = 1;
  if (norm != nullptr) {
    float squares = 0;
    for (int64_t j = lane; j < a.head_dim; j += kWarp) {
      const float x = ToFloat(from[j]);
      squares += x * x;
    }
    scale = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(a.head_dim) + a.eps);
  }
  for (int64_t j = lane; j < half; j += kWarp) {
    const float c = a.cos[row * half + j], s = a.sin[row * half + j];
    float first = ToFloat(from[j]), second = ToFloat(from[j + half]);
    if (norm != nullptr) {
      first *= scale * norm[j];
      second *= scale * norm[j + half];
    }
    to[j] = FromFloat<T>(first * c - second * s);
    to[j + half] = FromFloat<T>(second * c + first * s);
  }
}

template <typename From, typename T>
__device__ void CopyNumbers(const From* from, int64_t n, T* to) {
  for (int64_t j = threadIdx.x % kWarp; j < n; j += kWarp) to[j] = FromFloat<T>(ToFloat(from[j]));
}

// Returns the warp's task in tasks numbered head by head: one warp computes one head of one row.
struct HeadTask {
  int64_t row, head;
};
__device__ HeadTask TaskOf(int64_t n_heads) {
  const int64_t task = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  return {task / n_heads, task % n_heads};
}

// From is the type of q, k and v.
template <typename From>
__global__ void RotateKernel(RotateArgs a) {
  const auto [row, head] = TaskOf(HeadsPerRow(a));
  if (row >= a.n_rows) return;
  const int64_t at = row * a.ld + head * a.head_dim;
  float* to = a.qkv + at;
  if (head >= FirstValue(a)) {
    const int64_t value = (head - FirstValue(a)) * a.head_dim, left = a.n_values - value;
    const int64_t n = left < a.head_dim ? left : a.head_dim;
    if (a.value_slices == nullptr) return CopyNumbers(QkvAt<From>(a, at), n, to);
    return CopyNumbers(a.value_slices + row * a.ld_slices + value, n, to);
  }
  if (head >= a.n_heads && a.key_slices != nullptr) {
    const float* slices = a.key_slices + row * a.ld_slices;
    return RotateHead(a, row, head, slices + (head - a.n_heads) * a.head_dim, to);
  }
  RotateHead(a, row, head, QkvAt<From>(a, at), to);
}

// T is the type of the pages, From of q, k and v.
template <typename T, typename From>
__global__ void RotateIntoPagesKernel(RotateArgs a) {
  const auto [number, head] = TaskOf(HeadsPerRow(a));
  if (number >= a.pages.n_slots) return;
  const CacheSlot slot = a.pages.slots[number];
  if (slot.page == nullptr) return;
  const int64_t at = slot.row * a.ld + head * a.head_dim;
  const From* from = QkvAt<From>(a, at);
  if (head < a.n_heads) return RotateHead(a, slot.row, head, from, a.qkv + at);
  const bool is_value = head >= FirstValue(a);
  const int64_t kv_head = head - (is_value ? FirstValue(a) : a.n_heads);
  const int64_t plane = (a.layer * a.n_kv_heads + kv_head) * 2 + (is_value ? 1 : 0);
  T* to = reinterpret_cast<T*>(slot.page) + (plane * kPageTokens + slot.slot) * a.head_dim;
  if (is_value) return CopyNumbers(from, a.head_dim, to);
  RotateHead(a, slot.row, head, from, to);
}

template <typename T>
__global__ void GatedKernel(GatedArgs a) {
  const int64_t row = blockIdx.x, j = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (j >= a.n) return;
  const float* gate = static_cast<const float*>(a.gate_up) + row * a.ld +
                      j / kGatedGroup * 2 * kGatedGroup + j % kGatedGroup;
  static_cast<T*>(a.out)[row * a.n + j] = FromFloat<T>(SiluTimes(gate[0], gate[kGatedGroup]));
}

// Eight numbers of bf16, read and written as one.
struct alignas(16) EightHalves {
  uint32_t pairs[4];
};

__device__ float LowOf(uint32_t pair) { return ToFloat(static_cast<uint16_t>(pair & 0xffff)); }
__device__ float HighOf(uint32_t pair) { return ToFloat(static_cast<uint16_t>(pair >> 16)); }

// Gates a group of channels a thread, in bf16.
__global__ void GatedGroupsKernel(GatedArgs a) {
  static_assert(kGatedGroup == 8);
  const int64_t row = blockIdx.x, first = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * 8;
  if (first >= a.n) return;
  const auto* from = reinterpret_cast<const EightHalves*>(static_cast<const uint16_t*>(a.gate_up) +
                                                          row * a.ld + 2 * first);
  const EightHalves gates = from[0], ups = from[1];
  auto* to = static_cast<uint16_t*>(a.out) + row * a.n + first;
  EightHalves gated;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    gated.pairs[i] = PackBFloat16(SiluTimes(LowOf(gates.pairs[i]), LowOf(ups.pairs[i])),
                                  SiluTimes(HighOf(gates.pairs[i]), HighOf(ups.pairs[i])));
  }
  if (a.n % 8 == 0) {
    *reinterpret_cast<EightHalves*>(to) = gated;
    return;
  }
  for (int i = 0; i < 8 && first + i < a.n; ++i) {
    const uint32_t pair = gated.pairs[i / 2];
    to[i] = static_cast<uint16_t>(i % 2 == 0 ? pair & 0xffff : pair >> 16);
  }
}

template <typename T>
__global__ void RoundKernel(RoundArgs a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < a.n) static_cast<T*>(a.out)[i] = FromFloat<T>(a.x[i]);
}

LaunchShape Elements(int64_t n) {
  return {.blocks_x = (n + kThreads - 1) / kThreads, .threads = kThreads};
}

template <typename From>
void Rotate(Device& device, const RotateArgs& args) {
  const CacheSlots& pages = args.pages;
  const int64_t n_rows = pages.slots == nullptr ? args.n_rows : pages.n_slots;
  const auto kernel = pages.slots == nullptr ? RotateKernel<From>
                      : pages.cache_type == StorageType::kFloat32
                          ? RotateIntoPagesKernel<float, From>
                          : RotateIntoPagesKernel<uint16_t, From>;
  Launch(device, kernel, Elements(n_rows * HeadsPerRow(args) * kWarp), args);
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
  const auto kernel =
      FoursTake(args) ? ForType(args.out_type, RmsNormKernel<float, 4>, RmsNormKernel<uint16_t, 4>)
                      : ForType(args.out_type, RmsNormKernel<float, 1>, RmsNormKernel<uint16_t, 1>);
  Launch(device, kernel, RowBlocks(args.n_rows), args);
}

void AnglesOnDevice(Device& device, const AnglesArgs& args) {
  Launch(device, AnglesKernel, Elements(args.n_rows * args.half), args);
}

void RotateOnDevice(Device& device, const RotateArgs& args) {
  args.rounded == nullptr ? Rotate<float>(device, args) : Rotate<uint16_t>(device, args);
}

void GatedOnDevice(Device& device, const GatedArgs& args) {
  if (args.gate_up_type == StorageType::kBFloat16) {
    const int64_t n_groups = (args.n + kGatedGroup - 1) / kGatedGroup;
    Launch(device, GatedGroupsKernel,
           {.blocks_x = args.n_rows,
            .blocks_y = (n_groups + kThreads - 1) / kThreads,
            .threads = kThreads},
           args);
    return;
  }
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
