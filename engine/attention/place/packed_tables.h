#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_PACKED_TABLES_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_PACKED_TABLES_H_

#include <bit>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/attention/sequence.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Makes `buffer` hold at least size_bytes of the device's memory. Where it grows, its data are
// lost; it takes at least usual_bytes, and twice what it had, where there is so much, so that few
// steps wait for memory. RESOURCE_EXHAUSTED leaves the buffer as it was.
absl::Status GrowOnDevice(Device& device, int64_t size_bytes, Buffer& buffer,
                          int64_t usual_bytes = int64_t{1} << 20);

// One array of a plan: filled on the host, and read on the device after PackedTables::Upload.
template <typename T>
struct PlanTable : std::vector<T> {
  int64_t n() const { return static_cast<int64_t>(this->size()); }
  int64_t offset = 0;  // bytes from the begin of the packed tables
};

// Entries [begin, end) of a table.
struct TableRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

// Rounds the number of a table's entries from `begin` on up to a power of two, with entries `none`
// that do nothing. Steps of different sizes then have equal launches (AttentionMechanism::PlanKey).
template <typename T>
void PadTable(PlanTable<T>& table, int64_t begin = 0, const T& none = {}) {
  const auto n = static_cast<size_t>(table.n() - begin);
  if (n > 0) table.resize(static_cast<size_t>(begin) + std::bit_ceil(n), none);
}

// The arrays of a plan, brought to a device at once.
class PackedTables {
 public:
  // Queues the copy of the tables, in this order.
  template <typename... T>
  absl::Status Upload(Device& device, PlanTable<T>&... tables) {
    bytes_.clear();
    (Add(tables), ...);
    return Upload(device);
  }
  // Clear, Add for each table, and Upload do the same in steps.
  void Clear() { bytes_.clear(); }
  template <typename T>
  void Add(PlanTable<T>& table) {
    const size_t begin = (bytes_.size() + kAlignment - 1) / kAlignment * kAlignment;
    table.offset = static_cast<int64_t>(begin);
    bytes_.resize(begin + table.size() * sizeof(T));
    if (!table.empty()) std::memcpy(&bytes_[begin], table.data(), table.size() * sizeof(T));
  }
  absl::Status Upload(Device& device);

  // Returns the table on the device, from entry `first` on. The next Upload may move it.
  template <typename T>
  const T* At(const PlanTable<T>& table, int64_t first = 0) const {
    return reinterpret_cast<const T*>(on_device_.data() + table.offset) + first;
  }
  const void* data() const { return on_device_.data(); }

 private:
  static constexpr size_t kAlignment = 16;

  std::vector<std::byte> bytes_;
  Buffer on_device_;
};

// Says whether every sequence of a step has one row.
bool IsDecodeStep(absl::Span<const Segment> segments);

// Hashes numbers that tell plans apart, for PlanKey.
uint64_t KeyOf(const std::vector<int64_t>& numbers);
inline int64_t AddressOf(const void* p) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(p));
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_PACKED_TABLES_H_
