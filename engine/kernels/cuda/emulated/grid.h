#ifndef LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_GRID_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_GRID_H_

// CUDA's words for a C++ compiler, and a grid that runs kernels on the host: the threads of a block
// are fibers, which take turns at barriers and nowhere else. Tests see what a kernel computes, that
// it stays within its memory (AddressSanitizer sees every access) and that no result depends on the
// order of threads between barriers (SetThreadOrder).

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#include "absl/functional/function_ref.h"
#include "engine/kernels/cuda/grid/launch.h"
#include "engine/kernels/device/device.h"

#define __global__ static
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static thread_local
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define LK_DYNAMIC_SHARED(type, name) \
  type* name = reinterpret_cast<type*>(::lowkey::emulated::DynamicShared())

namespace lowkey {

namespace emulated {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
struct Place {
  Index3 thread, block, block_dim, grid_dim;
};
extern thread_local Place place;  // the place of the running thread

enum class ThreadOrder { kForward, kBackward, kShuffled };
// Sets the order in which the threads of a block run between two barriers.
void SetThreadOrder(ThreadOrder order);

// Runs every thread of every block. Ends the process when the threads of a block, or of a warp,
// wait at different barriers.
void RunGrid(const LaunchShape& shape, absl::FunctionRef<void()> thread);

std::byte* DynamicShared();
void SyncBlock();
void SyncWarp();
// Gives at most kMostExchanged bytes per lane; then `take` reads the bytes of all lanes. The lanes
// go on one by one: whoever lets others read its memory calls SyncWarp after it.
inline constexpr int kMostExchanged = 32;
void ExchangeInWarp(const void* give, int64_t size_bytes,
                    absl::FunctionRef<void(const std::byte (*lanes)[kMostExchanged])> take);
// Begins to copy 16 bytes; ends the thread's group of copies; makes all but the last n groups.
void BeginCopy(void* to, const void* from);
void CommitCopies();
void WaitCopies(int n);
// Queues work on an emulated device.
void Enqueue(Device& device, std::function<void()> work);

template <typename T>
T TakeFrom(T x, int source) {
  static_assert(sizeof(T) <= kMostExchanged);
  T taken;
  ExchangeInWarp(&x, sizeof(x), [&](const auto* lanes) {
    std::memcpy(&taken, lanes[source & 31], sizeof(taken));
  });
  return taken;
}
inline int LaneIndex() { return static_cast<int>(place.thread.x % 32); }

}  // namespace emulated

template <typename Args>
void Launch(Device& device, void (*kernel)(Args), const LaunchShape& shape, const Args& args) {
  emulated::Enqueue(device,
                    [kernel, shape, args] { emulated::RunGrid(shape, [&] { kernel(args); }); });
}

// The bytes are copied when the thread waits for their group, and not before: a wait that is
// missing leaves old bytes in place.
inline void CopyAsync16(void* shared, const void* global) { emulated::BeginCopy(shared, global); }
inline void CommitCopies() { emulated::CommitCopies(); }
inline float LoadUncached(const float* global) { return *global; }
template <int n>
void WaitCopies() {
  emulated::WaitCopies(n);
}

}  // namespace lowkey

#define threadIdx (::lowkey::emulated::place.thread)
#define blockIdx (::lowkey::emulated::place.block)
#define blockDim (::lowkey::emulated::place.block_dim)
#define gridDim (::lowkey::emulated::place.grid_dim)

inline void __syncthreads() { ::lowkey::emulated::SyncBlock(); }
inline void __syncwarp(unsigned = 0xffffffffu) { ::lowkey::emulated::SyncWarp(); }
// Every lane of the warp takes part.
template <typename T>
T __shfl_sync(unsigned, T x, int source) {
  return ::lowkey::emulated::TakeFrom(x, source);
}
template <typename T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return ::lowkey::emulated::TakeFrom(x, ::lowkey::emulated::LaneIndex() ^ mask);
}
// A lane without such a neighbor keeps its own value.
template <typename T>
T __shfl_down_sync(unsigned, T x, int by) {
  const int lane = ::lowkey::emulated::LaneIndex();
  return ::lowkey::emulated::TakeFrom(x, lane + by < 32 ? lane + by : lane);
}
template <typename T>
T __shfl_up_sync(unsigned, T x, int by) {
  const int lane = ::lowkey::emulated::LaneIndex();
  return ::lowkey::emulated::TakeFrom(x, lane >= by ? lane - by : lane);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  unsigned votes = 0;
  const unsigned mine = vote ? 1 : 0;
  ::lowkey::emulated::ExchangeInWarp(&mine, sizeof(mine), [&](const auto* lanes) {
    for (int i = 0; i < 32; ++i) {
      unsigned one;
      std::memcpy(&one, lanes[i], sizeof(one));
      votes |= one << i;
    }
  });
  return votes;
}
inline int __reduce_max_sync(unsigned, int x) {
  int largest = x;
  ::lowkey::emulated::ExchangeInWarp(&x, sizeof(x), [&](const auto* lanes) {
    for (int i = 0; i < 32; ++i) {
      int one;
      std::memcpy(&one, lanes[i], sizeof(one));
      largest = one > largest ? one : largest;
    }
  });
  return largest;
}
inline int __reduce_min_sync(unsigned mask, int x) { return ~__reduce_max_sync(mask, ~x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
// Threads take turns only at barriers.
inline unsigned atomicAdd(unsigned* to, unsigned x) {
  const unsigned old = *to;
  *to += x;
  return old;
}
inline void __threadfence() {}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline float __uint_as_float(uint32_t x) {
  float out;
  std::memcpy(&out, &x, sizeof(out));
  return out;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t out;
  std::memcpy(&out, &x, sizeof(out));
  return out;
}
// These round their results; no compiler fuses them.
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_GRID_H_
