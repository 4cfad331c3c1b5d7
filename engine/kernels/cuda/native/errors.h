#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_ERRORS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_ERRORS_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lowkey {

// Returns OK, or an error like "upload: an illegal memory access was encountered
// (cudaErrorIllegalAddress)": RESOURCE_EXHAUSTED where memory is short, FAILED_PRECONDITION without
// a device or its driver, else INTERNAL.
absl::Status CudaStatus(cudaError_t error, absl::string_view what);

// Returns the same for an error of cuBLASLt.
absl::Status CublasStatus(cublasStatus_t error, absl::string_view what);

}  // namespace lowkey

// Returns from the enclosing function when a call of the CUDA runtime fails.
#define LK_CUDA_RETURN_IF_ERROR(call, what) LK_RETURN_IF_ERROR(::lowkey::CudaStatus(call, what))

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_ERRORS_H_
