#include "engine/kernels/cuda/native/staging.h"

#include <algorithm>
#include <cstring>

#include "absl/memory/memory.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/native/errors.h"

namespace lowkey {
namespace {

// A step's tables are some kilobytes; copying 2 MiB takes about as long as filling another part.
constexpr int64_t kPartBytes = int64_t{2} << 20;
constexpr int kParts = 16;
constexpr int64_t kAlignment = 64;
// A step's tokens with their log-probabilities take 192 bytes each.
constexpr int64_t kLandingBytes = int64_t{256} << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(cudaStream_t stream) {
  auto made = absl::WrapUnique(new Staging(stream));
  void* memory = nullptr;
  LK_CUDA_RETURN_IF_ERROR(cudaHostAlloc(&memory, (kParts + 1) * kPartBytes, cudaHostAllocPortable),
                          "pinned memory");
  made->memory_ = static_cast<std::byte*>(memory);
  for (int i = 0; i < kParts; ++i) {
    Part part{made->memory_ + i * kPartBytes};
    LK_CUDA_RETURN_IF_ERROR(
        cudaEventCreateWithFlags(&part.copied, cudaEventDisableTiming | cudaEventBlockingSync),
        "event");
    made->parts_.push_back(part);
  }
  return made;
}

Staging::~Staging() {
  for (const Part& part : parts_) (void)cudaEventDestroy(part.copied);
  (void)cudaFreeHost(memory_);
  for (const Landing& landing : landings_) {
    if (landing.landed != nullptr) (void)cudaEventDestroy(landing.landed);
    if (landing.memory != nullptr) (void)cudaFreeHost(landing.memory);
  }
}

absl::Status Staging::NextPart() {
  LK_CUDA_RETURN_IF_ERROR(cudaEventRecord(parts_[part_].copied, stream_), "upload");
  part_ = (part_ + 1) % parts_.size();
  used_bytes_ = 0;
  // An event that was never recorded is done.
  LK_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(parts_[part_].copied), "upload");
  return absl::OkStatus();
}

absl::Status Staging::Upload(const void* from, void* to, int64_t size_bytes) {
  for (int64_t done = 0; done < size_bytes;) {
    if (used_bytes_ >= kPartBytes) LK_RETURN_IF_ERROR(NextPart());
    const int64_t n = std::min(size_bytes - done, kPartBytes - used_bytes_);
    std::byte* const pinned = parts_[part_].memory + used_bytes_;
    std::memcpy(pinned, static_cast<const std::byte*>(from) + done, static_cast<size_t>(n));
    LK_CUDA_RETURN_IF_ERROR(
        cudaMemcpyAsync(static_cast<std::byte*>(to) + done, pinned, static_cast<size_t>(n),
                        cudaMemcpyHostToDevice, stream_),
        "upload");
    used_bytes_ += (n + kAlignment - 1) / kAlignment * kAlignment;
    done += n;
  }
  return absl::OkStatus();
}

absl::Status Staging::Download(const void* from, void* to, int64_t size_bytes) {
  std::byte* const pinned = memory_ + kParts * kPartBytes;
  for (int64_t done = 0; done < size_bytes; done += kPartBytes) {
    const auto n = static_cast<size_t>(std::min(size_bytes - done, kPartBytes));
    LK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(pinned, static_cast<const std::byte*>(from) + done, n,
                                            cudaMemcpyDeviceToHost, stream_),
                            "download");
    LK_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_), "download");
    std::memcpy(static_cast<std::byte*>(to) + done, pinned, n);
  }
  return absl::OkStatus();
}

// Waits for the copy that was to land in the old memory.
absl::Status Staging::Grow(Landing& landing, int64_t size_bytes) {
  if (landing.landed == nullptr) {
    LK_CUDA_RETURN_IF_ERROR(cudaEventCreateWithFlags(&landing.landed, cudaEventDisableTiming),
                            "event");
  }
  if (landing.size_bytes >= size_bytes) return absl::OkStatus();
  LK_CUDA_RETURN_IF_ERROR(cudaEventSynchronize(landing.landed), "fetch");
  const int64_t grown = std::max({size_bytes, 2 * landing.size_bytes, kLandingBytes});
  void* memory = nullptr;
  LK_CUDA_RETURN_IF_ERROR(cudaHostAlloc(&memory, static_cast<size_t>(grown), cudaHostAllocPortable),
                          "pinned memory");
  if (landing.memory != nullptr) (void)cudaFreeHost(landing.memory);
  landing.memory = static_cast<std::byte*>(memory);
  landing.size_bytes = grown;
  return absl::OkStatus();
}

absl::StatusOr<Staging::Landing*> Staging::Fetch(const void* from, int64_t size_bytes) {
  if (free_landings_.empty()) free_landings_.push_back(&landings_.emplace_back());
  Landing* const landing = free_landings_.back();
  LK_RETURN_IF_ERROR(Grow(*landing, size_bytes));
  LK_CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(landing->memory, from, static_cast<size_t>(size_bytes),
                                          cudaMemcpyDeviceToHost, stream_),
                          "fetch");
  LK_CUDA_RETURN_IF_ERROR(cudaEventRecord(landing->landed, stream_), "fetch");
  free_landings_.pop_back();
  return landing;
}

}  // namespace lowkey
