// Quantizes full pages of keys and values into closed pages.

#include "engine/kernels/cuda/attention/closed_pages.h"
#include "engine/kernels/cuda/attention/coding.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int kThreads = 256;

// Codes keys. One thread codes one channel of 32 tokens.
template <typename T>
__device__ inline void CodeKeys(const T* keys, int d, int bits, uint8_t* codes, uint32_t* numbers) {
  for (int i = threadIdx.x; i < kPageTokensInt / kClosedGroup * d; i += kThreads) {
    const int first = i / d * kClosedGroup * d + i % d;
    float low = ToFloat(keys[first]), high = low;
    for (int token = 1; token < kClosedGroup; ++token) {
      const float x = ToFloat(keys[first + token * d]);
      low = fminf(low, x);
      high = fmaxf(high, x);
    }
    const Coding coding(low, high, bits);
    numbers[i] = coding.numbers;
    for (int token = 0; token < kClosedGroup; ++token) {
      codes[first + token * d] = coding.Code(ToFloat(keys[first + token * d]));
    }
  }
}

// Codes values. One warp codes 32 channels of a token.
template <typename T>
__device__ inline void CodeValues(const T* values, int d, int bits, uint8_t* codes,
                                  uint32_t* numbers) {
  const int n_groups = (d + kClosedGroup - 1) / kClosedGroup, lane = threadIdx.x % kWarp;
  for (int i = threadIdx.x / kWarp; i < kPageTokensInt * n_groups; i += kThreads / kWarp) {
    const int first = i / n_groups * d, channel = i % n_groups * kClosedGroup + lane;
    const int at = first + (channel < d ? channel : d - 1);
    const float x = ToFloat(values[at]);
    const float high = WarpMax(x), low = -WarpMax(-x);
    const Coding coding(low, high, bits);
    if (lane == 0) numbers[i] = coding.numbers;
    if (channel < d) codes[at] = coding.Code(x);
  }
}

// Stores the codes of a plane of n numbers to their place.
__device__ inline void StoreCodes(const uint8_t* codes, int n, int bits, uint8_t* to) {
  if (bits == 8) {
    for (int i = threadIdx.x; i < n; i += kThreads) to[i] = codes[i];
    return;
  }
  for (int i = threadIdx.x; i < n / 2; i += kThreads) {
    to[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

// Shared memory holds the codes of one plane [64, head_dim].
template <typename T>
__global__ void __launch_bounds__(kThreads) ClosePageKernel(ClosePagesArgs a) {
  LK_DYNAMIC_SHARED(uint8_t, codes);
  const ClosePageTask task = a.tasks[blockIdx.x];
  if (task.closed == nullptr) return;
  const auto d = static_cast<int>(a.head_dim), n = kPageTokensInt * d;
  const int64_t head = a.layer * a.n_kv_heads + blockIdx.y;
  const T* keys = reinterpret_cast<const T*>(task.page) + head * 2 * n;
  auto* tile = reinterpret_cast<uint8_t*>(task.closed) + head * ClosedTileBytes(d, task.bits);
  const ClosedTile<uint8_t> to = ViewClosed(tile, d, task.bits);
  CodeKeys(keys, d, task.bits, codes, to.key_numbers);
  __syncthreads();
  StoreCodes(codes, n, task.bits, to.keys);
  __syncthreads();
  CodeValues(keys + n, d, task.bits, codes, to.value_numbers);
  __syncthreads();
  StoreCodes(codes, n, task.bits, to.values);
}

}  // namespace

void ClosePagesOnDevice(Device& device, const ClosePagesArgs& args) {
  Launch(
      device,
      args.cache_type == StorageType::kFloat32 ? ClosePageKernel<float> : ClosePageKernel<uint16_t>,
      {.blocks_x = args.n_tasks,
       .blocks_y = args.n_kv_heads,
       .threads = kThreads,
       .shared_bytes = kPageTokensInt * args.head_dim},
      args);
}

}  // namespace lowkey
