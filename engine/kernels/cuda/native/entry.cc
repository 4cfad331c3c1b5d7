#include "engine/kernels/cuda/entry.h"

#include <string>

#include "engine/kernels/cuda/native/native_device.h"

// What the library gives away: no other name of it is seen.
#define LK_EXPORT extern "C" __attribute__((visibility("default")))

LK_EXPORT const char* lowkey_cuda_interface() { return LOWKEY_DEVICE_INTERFACE; }

LK_EXPORT void lowkey_cuda_open(int64_t index, lowkey::OpenedDevice* opened) {
  *opened = lowkey::NativeDevice::Open(index);
}
