#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_ERRORS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_ERRORS_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lowkey {

// "upload: an illegal memory access was encountered (cudaErrorIllegalAddress)". RESOURCE_EXHAUSTED
// for want of memory, FAILED_PRECONDITION for want of a device or of its driver, else INTERNAL.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// Of cuBLASLt, in the same way.
absl::Status CublasStatus(cublasStatus_t error, absl::string_view what);

}  // namespace lowkey

// Returns from the enclosing function when a call of the CUDA runtime fails.
#define LK_CUDA_RETURN_IF_ERROR(call, what) LK_RETURN_IF_ERROR(::lowkey::CudaStatus(call, what))

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_ERRORS_H_
