#include "engine/kernels/cuda/native/errors.h"

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return absl::StatusCode::kOk;
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoKernelImageForDevice:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status CudaStatus(cudaError_t error, absl::string_view what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::Status(CodeOf(error), absl::StrCat(what, ": ", cudaGetErrorString(error), " (",
                                                  cudaGetErrorName(error), ")"));
}

absl::Status CublasStatus(cublasStatus_t error, absl::string_view what) {
  if (error == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const auto code = error == CUBLAS_STATUS_ALLOC_FAILED ? absl::StatusCode::kResourceExhausted
                                                        : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(what, ": ", cublasLtGetStatusString(error)));
}

}  // namespace lowkey
