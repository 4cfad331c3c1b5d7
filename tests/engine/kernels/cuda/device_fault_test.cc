// This test is a process of its own, because a GPU does no work in it after the fault.

#include <gtest/gtest.h>

#include "engine/kernels/device/kernels.h"
#include "tests/testing/emulated/emulated_device.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

// A row far outside of the device's memory.
void ReadWhereNothingIs(Device& device) {
  if (IsEmulated(device)) {
    static_cast<EmulatedDevice&>(device).Break(absl::InternalError("emulated: fault"));
    return;
  }
  DeviceArray<int32_t> tokens(1);
  DeviceArray<float> x(8);
  const auto* nowhere = reinterpret_cast<const void*>(uintptr_t{1} << 44);
  device.kernels().embed(device, {tokens.data(), nowhere, StorageType::kFloat32, 8, x.data(), 1});
  device.Wait().IgnoreError();
}

TEST(DeviceFaultTest, AFaultShowsAtTheNextWaitAndStays) {
  Device& device = KernelTestDevice();
  const DeviceArray<float> there(8);
  const auto under_way = device.Fetch(there.data(), 4);
  ReadWhereNothingIs(device);
  const absl::Status fault = device.Wait();
  EXPECT_EQ(fault.code(), absl::StatusCode::kInternal) << fault;
  EXPECT_EQ(device.status(), fault);
  float x = 1;
  EXPECT_EQ(device.Download(&x, &x, 0), fault);
  EXPECT_EQ(device.Wait(), fault);
  EXPECT_EQ(under_way->Wait().status(), fault);
  EXPECT_EQ(device.Fetch(&x, 0)->Wait().status(), fault);
  device.Repeat(1, [] {});
  EXPECT_EQ(device.status(), fault);
  if (IsEmulated(device)) return;
  EXPECT_FALSE(Buffer::Allocate(64, &device).ok());
  EXPECT_EQ(device.free_bytes(), 0);
}

}  // namespace
}  // namespace lowkey
