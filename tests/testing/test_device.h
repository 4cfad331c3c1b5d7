#ifndef LOWKEY_TESTS_TESTING_TEST_DEVICE_H_
#define LOWKEY_TESTS_TESTING_TEST_DEVICE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/buffer.h"
#include "engine/kernels/device/device.h"
#include "gtest/gtest.h"

namespace lowkey {

// The device that the environment variable LOWKEY_TEST_DEVICE names ("emulated", "cuda:0"); nullptr
// where it names none. One for the process. In a program that calls this, all tests are skipped
// ("no CUDA device: why") where there is no such device.
Device* TestDevice();

// One more such device, for programs that need several; nullptr as above.
std::shared_ptr<Device> NewTestDevice();

// That device, or else the emulated one.
Device& KernelTestDevice();

// Whether kernels run on the emulated grid.
bool IsEmulated(const Device& device);

// n elements in the memory of KernelTestDevice(). On the emulated device they are the heap's, so
// that AddressSanitizer sees the first byte past their end.
template <typename T>
class DeviceArray {
 public:
  // Zeros.
  explicit DeviceArray(int64_t n) : DeviceArray(std::vector<T>(n)) {}
  explicit DeviceArray(std::vector<T> values) : n_(static_cast<int64_t>(values.size())) {
    Device& device = KernelTestDevice();
    if (IsEmulated(device)) {
      host_ = std::move(values);
      return;
    }
    there_ = Buffer::Allocate(values.size() * sizeof(T), &device).value();
    device.Upload(values.data(), there_.data(), n_ * static_cast<int64_t>(sizeof(T)));
  }

  T* data() { return there_.data() == nullptr ? host_.data() : there_.as<T>(); }
  const T* data() const { return there_.data() == nullptr ? host_.data() : there_.as<T>(); }
  int64_t size() const { return n_; }

  // What is there when all that was queued is done.
  std::vector<T> Read() const {
    std::vector<T> values(n_);
    const absl::Status status =
        KernelTestDevice().Download(data(), values.data(), n_ * static_cast<int64_t>(sizeof(T)));
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

 private:
  int64_t n_;
  std::vector<T> host_;
  Buffer there_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_TEST_DEVICE_H_
