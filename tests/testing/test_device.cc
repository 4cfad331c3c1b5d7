#include "tests/testing/test_device.h"

#include <cstdlib>
#include <string>

#include "engine/kernels/cuda/emulated/emulated_device.h"

namespace lowkey {

std::shared_ptr<Device> NewTestDevice() {
  const char* name = std::getenv("LOWKEY_TEST_DEVICE");
  if (name == nullptr) return nullptr;
  if (std::string(name) == "emulated") return std::make_shared<EmulatedDevice>();
  return OpenDevice(name).value();
}

}  // namespace lowkey
