#ifndef LOWKEY_TESTS_TESTING_TEST_DEVICE_H_
#define LOWKEY_TESTS_TESTING_TEST_DEVICE_H_

#include <memory>

#include "engine/kernels/device.h"

namespace lowkey {

// A device as the environment variable LOWKEY_TEST_DEVICE names it, "emulated" or "cuda:0", for
// tests that run in either place; nullptr without the variable: the host.
std::shared_ptr<Device> NewTestDevice();

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_TEST_DEVICE_H_
