// Stands in for liblowkey_cuda.so: its device never opens.

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "engine/kernels/cuda/entry.h"

extern "C" const char* lowkey_cuda_interface() { return STAND_IN_INTERFACE; }

extern "C" void lowkey_cuda_open(int64_t index, lowkey::OpenedDevice* opened) {
  if (STAND_IN_INTERFACE[0] == '?') std::abort();
  *opened = absl::ResourceExhaustedError(absl::StrCat("no room on device ", index));
}
