#include "engine/attention/place/packed_tables.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::Status GrowOnDevice(Device& device, int64_t size_bytes, Buffer& buffer, int64_t usual_bytes) {
  const auto held = static_cast<int64_t>(buffer.size_bytes());
  if (size_bytes <= held) return absl::OkStatus();
  const int64_t wanted = std::max({size_bytes, usual_bytes, 2 * held});
  auto grown = Buffer::Allocate(static_cast<size_t>(wanted), &device);
  if (!grown.ok()) grown = Buffer::Allocate(static_cast<size_t>(size_bytes), &device);
  LK_RETURN_IF_ERROR(grown.status());
  buffer = *std::move(grown);
  return absl::OkStatus();
}

absl::Status PackedTables::Upload(Device& device) {
  const auto n_bytes = static_cast<int64_t>(bytes_.size());
  LK_RETURN_IF_ERROR(GrowOnDevice(device, n_bytes, on_device_));
  if (n_bytes > 0) device.Upload(bytes_.data(), on_device_.data(), n_bytes);
  return absl::OkStatus();
}

bool IsDecodeStep(absl::Span<const Segment> segments) {
  return std::all_of(segments.begin(), segments.end(),
                     [](const Segment& s) { return s.n_rows == 1; });
}

// Hashes words in the manner of FNV-1a, each mixed so that every bit counts.
uint64_t KeyOf(const std::vector<int64_t>& numbers) {
  uint64_t key = 0xcbf29ce484222325u;
  for (const int64_t n : numbers) {
    auto x = static_cast<uint64_t>(n) * 0x9e3779b97f4a7c15u;
    x ^= x >> 32;
    key = (key ^ x) * 0x100000001b3u;
    key ^= key >> 29;
  }
  return key;
}

}  // namespace lowkey
