#ifndef LOWKEY_ENGINE_RUNTIME_PLACED_ROWS_H_
#define LOWKEY_ENGINE_RUNTIME_PLACED_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Rows that tools hand to a mechanism, and room for its outputs, where it computes.
class PlacedRows {
 public:
  // `device` outlives this; nullptr: the host. RESOURCE_EXHAUSTED.
  static absl::StatusOr<PlacedRows> Create(absl::Span<const float> rows, int64_t n_out,
                                           Device* device);

  const float* rows() const { return rows_.as<float>(); }
  float* out() { return out_.as<float>(); }
  // When everything is computed.
  absl::Status Wait() const { return device_ == nullptr ? absl::OkStatus() : device_->Wait(); }
  absl::Status Fetch(absl::Span<float> out) const;

 private:
  Device* device_ = nullptr;
  Buffer rows_, out_;
};

// The caches and the place of a mechanism that tools run by itself.
class MechanismPlace {
 public:
  // Room for that many bytes; at least a page.
  static absl::StatusOr<std::unique_ptr<MechanismPlace>> Create(const AttentionGeometry& geometry,
                                                                int64_t cache_bytes,
                                                                int64_t max_rows, Device* device);

  Cache& cache() { return *cache_; }
  int64_t used_bytes() const {
    return cache_->used_bytes() + (host_cache_ == nullptr ? 0 : host_cache_->used_bytes());
  }
  // nullptr: the host.
  const DevicePlace* device_place() const { return place_.device == nullptr ? nullptr : &place_; }

 private:
  std::unique_ptr<Cache> cache_, host_cache_;
  DevicePlace place_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PLACED_ROWS_H_
