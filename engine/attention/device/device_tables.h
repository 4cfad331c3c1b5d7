#ifndef LOWKEY_ENGINE_ATTENTION_DEVICE_DEVICE_TABLES_H_
#define LOWKEY_ENGINE_ATTENTION_DEVICE_DEVICE_TABLES_H_

#include <cstring>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "engine/kernels/device.h"

namespace lowkey {

// Tables that a step writes on a device at once: Begin, Put of each, Upload.
class DeviceTables {
 public:
  explicit DeviceTables(Device* device) : device_(device) {}

  void Begin() {
    staged_.clear();
    places_.clear();
  }

  // `there` is to point to the rows on the device after Upload, until the next one. A table that
  // grows a little stays where it is, and those after it: room is left to the next power of two.
  template <typename T>
  void Put(const std::vector<T>& rows, const T** there) {
    const size_t at = staged_.size();
    staged_.resize(at + Room(rows.size() * sizeof(T)));
    if (!rows.empty()) std::memcpy(staged_.data() + at, rows.data(), rows.size() * sizeof(T));
    places_.push_back(
        [at, there](std::byte* base) { *there = reinterpret_cast<const T*>(base + at); });
  }

  // RESOURCE_EXHAUSTED when the device's memory cannot be had.
  absl::Status Upload();

 private:
  static size_t Room(size_t n_bytes);

  Device* const device_;
  std::vector<std::byte> staged_;
  std::vector<std::function<void(std::byte*)>> places_;
  Buffer tables_;
};

// Makes room for n_floats; what was there is gone where it grows. RESOURCE_EXHAUSTED when the
// memory cannot be had.
absl::Status GrowFloats(Device* device, int64_t n_floats, Buffer& buffer);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_DEVICE_DEVICE_TABLES_H_
