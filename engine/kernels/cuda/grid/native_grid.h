#ifndef LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_GRID_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_GRID_H_

// grid.h for nvcc. Only grid.h includes it.

#include <cuda_runtime.h>

#include "engine/kernels/cuda/grid/launch.h"

// Declares a pointer to the block's shared memory of LaunchShape::shared_bytes, aligned to 16.
#define LK_DYNAMIC_SHARED(type, name)                               \
  extern __shared__ __align__(16) unsigned char lk_dynamic_bytes[]; \
  type* name = reinterpret_cast<type*>(lk_dynamic_bytes)

namespace lowkey {

// "memory" keeps the compiler from moving reads and writes of shared memory across these.

// Copies 16 aligned bytes from global to shared memory; the thread does not wait.
__device__ inline void CopyAsync16(void* shared, const void* global) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(to), "l"(global) : "memory");
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most n of the groups committed last are still under way.
template <int n>
__device__ inline void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(n) : "memory");
}

// Loads what another block of the grid may have stored.
__device__ inline float LoadUncached(const float* global) { return __ldcg(global); }

template <typename Args>
void Launch(Device& device, void (*kernel)(Args), const LaunchShape& shape, const Args& args) {
  LaunchNative(device, reinterpret_cast<const void*>(kernel), shape, &args);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_GRID_NATIVE_GRID_H_
