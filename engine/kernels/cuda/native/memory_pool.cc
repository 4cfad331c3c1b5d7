#include "engine/kernels/cuda/native/memory_pool.h"

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"

namespace lowkey {

absl::StatusOr<std::unique_ptr<MemoryPool>> MemoryPool::Create(int device, cudaStream_t stream) {
  cudaMemPoolProps props{};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device;
  cudaMemPool_t pool = nullptr;
  LK_CUDA_RETURN_IF_ERROR(cudaMemPoolCreate(&pool, &props), "memory pool");
  auto made = absl::WrapUnique(new MemoryPool(pool, stream));
  // By default the pool gives everything back at every wait, and maps it again at the next use.
  uint64_t keep_bytes = UINT64_MAX;
  LK_CUDA_RETURN_IF_ERROR(
      cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep_bytes), "memory pool");
  return made;
}

MemoryPool::~MemoryPool() { (void)cudaMemPoolDestroy(pool_); }

absl::StatusOr<std::byte*> MemoryPool::Allocate(int64_t size_bytes) {
  const auto n = static_cast<size_t>(size_bytes);
  void* p = nullptr;
  cudaError_t error = cudaMallocFromPoolAsync(&p, n, pool_, stream_);
  if (error == cudaErrorMemoryAllocation) {
    // The pool's free memory may be in pieces: give it back, and take it in one.
    (void)cudaGetLastError();
    LK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_), "wait");
    LK_CUDA_RETURN_IF_ERROR(cudaMemPoolTrimTo(pool_, 0), "memory pool");
    error = cudaMallocFromPoolAsync(&p, n, pool_, stream_);
  }
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return absl::ResourceExhaustedError(
        absl::StrCat("device memory: ", free_bytes(), " bytes are free, expected ", size_bytes));
  }
  LK_CUDA_RETURN_IF_ERROR(error, "device memory");
  LK_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(p, 0, n, stream_), "device memory");
  return static_cast<std::byte*>(p);
}

cudaError_t MemoryPool::Free(std::byte* p) { return cudaFreeAsync(p, stream_); }

int64_t MemoryPool::free_bytes() const {
  size_t free = 0, total = 0;
  uint64_t reserved = 0, used = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) != cudaSuccess ||
      cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrUsedMemCurrent, &used) != cudaSuccess) {
    return 0;  // a broken device, whose status says so at the next wait
  }
  return static_cast<int64_t>(free + (reserved - used));
}

}  // namespace lowkey
