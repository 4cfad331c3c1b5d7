#ifndef LOWKEY_TESTS_TESTING_PEAK_MEMORY_H_
#define LOWKEY_TESTS_TESTING_PEAK_MEMORY_H_

#include <cstddef>

#include "absl/functional/function_ref.h"

namespace lowkey {

// Runs `work` and returns the most bytes that it held at once through operator new, beyond those
// that were held before. A program that links this has its operator new counted, on all threads
// together.
size_t PeakBytes(absl::FunctionRef<void()> work);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_PEAK_MEMORY_H_
