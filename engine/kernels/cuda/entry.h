#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ENTRY_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ENTRY_H_

// The interface of liblowkey_cuda.so, which the program loads when a CUDA device is asked for: a
// machine without a GPU needs nothing of CUDA.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

using OpenedDevice = absl::StatusOr<std::unique_ptr<Device>>;

// The type of "lowkey_cuda_interface", which returns a digest of the headers that both sides share
// (LOWKEY_DEVICE_INTERFACE). The program calls the other function only if the digest is its own.
using CudaInterfaceFunction = const char* (*)();
// The type of "lowkey_cuda_open", which opens device number `index`, >= 0. FAILED_PRECONDITION
// without a driver or device.
using CudaOpenFunction = void (*)(int64_t index, OpenedDevice* opened);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ENTRY_H_
