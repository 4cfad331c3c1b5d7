#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_MEMORY_POOL_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_MEMORY_POOL_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace lowkey {

// A device's memory, taken and returned in the order of a stream, so that neither waits. The pool
// keeps returned memory for the next Allocate. The device is the thread's current one throughout.
class MemoryPool {
 public:
  static absl::StatusOr<std::unique_ptr<MemoryPool>> Create(int device, cudaStream_t stream);
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Returns zeros, aligned to 256 bytes. RESOURCE_EXHAUSTED when there is no such room, after which
  // the device is as it was.
  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes);
  cudaError_t Free(std::byte* p);
  // Returns the free bytes of the device, and those that the pool holds unused.
  int64_t free_bytes() const;

 private:
  MemoryPool(cudaMemPool_t pool, cudaStream_t stream) : pool_(pool), stream_(stream) {}

  const cudaMemPool_t pool_;
  const cudaStream_t stream_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_MEMORY_POOL_H_
