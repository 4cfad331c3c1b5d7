#ifndef LOWKEY_ENGINE_BASE_CONTAINED_H_
#define LOWKEY_ENGINE_BASE_CONTAINED_H_

#include <chrono>
#include <new>
#include <thread>

#include "absl/status/status.h"

namespace lowkey {

// Runs `work`. A lack of memory ends this work alone; any other exception is a bug of ours and ends
// the process. Returns whether the work came to its end.
template <typename Work>
bool RunContained(Work&& work) noexcept {
  try {
    work();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// Runs `work` again and again until there is memory for it: for what others wait for, such as the
// next connection or a request's end. `work` must change nothing when it throws.
template <typename Work>
void RunInTheEnd(const Work& work) noexcept {
  while (!RunContained(work)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The status of a request that ended for a lack of memory.
inline absl::Status OutOfMemory() noexcept {
  absl::Status status(absl::StatusCode::kResourceExhausted, "");  // takes no memory
  RunContained([&status] { status = absl::ResourceExhaustedError("no memory left; try again"); });
  return status;
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_CONTAINED_H_
