#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_PACKED_TABLES_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_PACKED_TABLES_H_

#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Makes `buffer` hold at least size_bytes of the device's memory, more than that where it grows;
// what it held is lost then. RESOURCE_EXHAUSTED leaves it as it was.
absl::Status GrowOnDevice(Device& device, int64_t size_bytes, Buffer& buffer);

// The arrays of a plan, brought to a device at once.
class PackedTables {
 public:
  // Where the array lies in the tables, bytes from their begin.
  template <typename T>
  int64_t Add(const std::vector<T>& array) {
    const size_t at = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    bytes_.resize(at + array.size() * sizeof(T));
    if (!array.empty()) std::memcpy(bytes_.data() + at, array.data(), array.size() * sizeof(T));
    return static_cast<int64_t>(at);
  }
  void Clear() { bytes_.clear(); }

  // Queues the copy of all that was added since Clear.
  absl::Status Upload(Device& device);

  // On the device, after Upload. The next one may move it.
  template <typename T>
  const T* At(int64_t offset) const {
    return reinterpret_cast<const T*>(there_.data() + offset);
  }

 private:
  static constexpr size_t kAlignment = 16;

  std::vector<std::byte> bytes_;
  Buffer there_;
};

// Of numbers that tell plans apart, for PlanKey.
uint64_t KeyOf(const std::vector<int64_t>& numbers);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_PACKED_TABLES_H_
