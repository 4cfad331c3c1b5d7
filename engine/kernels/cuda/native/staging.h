#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_STAGING_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_STAGING_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

// Copies between host and device through pinned memory, which the device reads by itself: from any
// other memory the driver would copy in the same way, but wait for it.
class Staging {
 public:
  static absl::StatusOr<std::unique_ptr<Staging>> Create(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Host to device. Returns when `from` is read, which is at once unless so much has been uploaded
  // before that no part of the ring is free.
  absl::Status Upload(const void* from, void* to, int64_t size_bytes);
  // Device to host, when all that was queued before is done.
  absl::Status Download(const void* from, void* to, int64_t size_bytes);

  // Pinned memory that a copy to the host lands in; done when the event is.
  struct Landing {
    std::byte* memory = nullptr;
    int64_t size_bytes = 0;
    cudaEvent_t landed = nullptr;
  };
  // Queues a copy into a landing that nobody has. Give it back with Return, at any time: whatever
  // lands there later does so after.
  absl::StatusOr<Landing*> Fetch(const void* from, int64_t size_bytes);
  void Return(Landing* landing) { free_landings_.push_back(landing); }

 private:
  // A part of the ring. Its event is recorded behind the last copy out of it.
  struct Part {
    std::byte* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };

  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  absl::Status NextPart();
  absl::Status Grow(Landing& landing, int64_t size_bytes);

  const cudaStream_t stream_;
  std::byte* memory_ = nullptr;  // all parts, then what downloads go through
  std::vector<Part> parts_;
  size_t part_ = 0;               // that is being filled
  int64_t used_bytes_ = 0;        // of it
  std::deque<Landing> landings_;  // which stay where they are
  std::vector<Landing*> free_landings_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_STAGING_H_
