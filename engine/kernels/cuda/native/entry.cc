#include "engine/kernels/cuda/entry.h"

#include <string>

#include "engine/kernels/cuda/native/native_device.h"

// Exports a function of the library; no other name is visible.
#define LK_EXPORT extern "C" __attribute__((visibility("default")))

LK_EXPORT const char* lowkey_cuda_interface() { return LOWKEY_DEVICE_INTERFACE; }

LK_EXPORT void lowkey_cuda_open(int64_t index, lowkey::OpenedDevice* opened) {
  *opened = lowkey::NativeDevice::Open(index);
}
