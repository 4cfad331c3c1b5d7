#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ENTRY_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ENTRY_H_

// How the program finds CUDA's device in liblowkey_cuda.so, which it loads where one is asked for:
// without a GPU nothing of CUDA need be there.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

using OpenedDevice = absl::StatusOr<std::unique_ptr<Device>>;

// Called "lowkey_cuda_interface" there: a digest of the headers that both sides must share
// (LOWKEY_DEVICE_INTERFACE). Only where it is the program's own may the other one be called.
using CudaInterfaceFunction = const char* (*)();
// "lowkey_cuda_open": Device number `index`, >= 0. FAILED_PRECONDITION without a driver or device.
using CudaOpenFunction = void (*)(int64_t index, OpenedDevice* opened);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ENTRY_H_
