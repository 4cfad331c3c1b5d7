#include "tests/testing/test_device.h"

#include <cstdlib>
#include <memory>
#include <string>

#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

// What the variable names, opened; OK and nullptr where it names nothing.
absl::StatusOr<std::unique_ptr<Device>> Open() {
  const char* name = std::getenv("LOWKEY_TEST_DEVICE");
  if (name == nullptr || *name == '\0') return std::unique_ptr<Device>();
  if (std::string(name) == "emulated") return std::make_unique<EmulatedDevice>();
  return OpenDevice(name);
}

absl::StatusOr<std::unique_ptr<Device>>& Named() {
  static absl::StatusOr<std::unique_ptr<Device>> device = Open();
  return device;
}

class NeedsItsDevice : public testing::Environment {
 public:
  void SetUp() override {
    const absl::Status& status = Named().status();
    if (absl::IsFailedPrecondition(status)) GTEST_SKIP() << "no CUDA device: " << status;
    ASSERT_TRUE(status.ok()) << status;
  }
};

const testing::Environment* const environment =
    testing::AddGlobalTestEnvironment(new NeedsItsDevice);

}  // namespace

Device* TestDevice() { return Named().value().get(); }

std::shared_ptr<Device> NewTestDevice() { return Open().value(); }

Device& KernelTestDevice() {
  if (TestDevice() != nullptr) return *TestDevice();
  static EmulatedDevice emulated;
  return emulated;
}

bool IsEmulated(const Device& device) { return device.name() == "emulated"; }

}  // namespace lowkey
