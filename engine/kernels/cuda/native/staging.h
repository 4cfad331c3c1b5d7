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
// other memory the driver would copy in the same way, but wait for the copy.
class Staging {
 public:
  static absl::StatusOr<std::unique_ptr<Staging>> Create(cudaStream_t stream);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Copies to the device. Returns when `from` has been read: at once, unless no part of the ring is
  // free.
  absl::Status Upload(const void* from, void* to, int64_t size_bytes);
  // Copies to the host, and waits for all that was queued before.
  absl::Status Download(const void* from, void* to, int64_t size_bytes);

  // Pinned memory for a copy to the host, which is done when the event is.
  struct Landing {
    std::byte* memory = nullptr;
    int64_t size_bytes = 0;
    cudaEvent_t landed = nullptr;
  };
  // Queues a copy into a free landing. Return gives the landing back at any time: later copies into
  // it come after.
  absl::StatusOr<Landing*> Fetch(const void* from, int64_t size_bytes);
  void Return(Landing* landing) { free_landings_.push_back(landing); }

 private:
  // A part of the ring. Its event is recorded after the last copy out of the part.
  struct Part {
    std::byte* memory = nullptr;
    cudaEvent_t copied = nullptr;
  };

  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  absl::Status NextPart();
  absl::Status Grow(Landing& landing, int64_t size_bytes);

  const cudaStream_t stream_;
  std::byte* memory_ = nullptr;  // all parts, then the memory of downloads
  std::vector<Part> parts_;
  size_t part_ = 0;               // the part that is being filled
  int64_t used_bytes_ = 0;        // bytes used of that part
  std::deque<Landing> landings_;  // their addresses stay the same
  std::vector<Landing*> free_landings_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_STAGING_H_
