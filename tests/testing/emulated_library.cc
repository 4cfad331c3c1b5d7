// Stands in for liblowkey_cuda.so where there is no GPU: its devices run on the emulated grid.
#include "engine/kernels/cuda/entry.h"
#include "tests/testing/emulated/emulated_device.h"

extern "C" const char* lowkey_cuda_interface() { return LOWKEY_DEVICE_INTERFACE; }

extern "C" void lowkey_cuda_open(int64_t, lowkey::OpenedDevice* opened) {
  *opened = std::make_unique<lowkey::EmulatedDevice>();
}
