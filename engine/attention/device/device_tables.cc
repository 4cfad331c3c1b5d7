#include "engine/attention/device/device_tables.h"

#include <algorithm>
#include <bit>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

absl::Status Grow(Device* device, size_t n_bytes, Buffer& buffer) {
  if (buffer.size_bytes() >= n_bytes) return absl::OkStatus();
  // The old one goes first: both at once may be more than there is.
  buffer = {};
  LK_ASSIGN_OR_RETURN(buffer, Buffer::Allocate(std::bit_ceil(n_bytes), device));
  return absl::OkStatus();
}

}  // namespace

size_t DeviceTables::Room(size_t n_bytes) {
  constexpr size_t kLeast = 256;  // keeps every table aligned
  return std::max(kLeast, std::bit_ceil(n_bytes));
}

absl::Status DeviceTables::Upload() {
  LK_RETURN_IF_ERROR(Grow(device_, staged_.size(), tables_));
  for (const auto& place : places_) place(tables_.data());
  device_->Upload(staged_.data(), tables_.data(), static_cast<int64_t>(staged_.size()));
  return absl::OkStatus();
}

absl::Status GrowFloats(Device* device, int64_t n_floats, Buffer& buffer) {
  return Grow(device, static_cast<size_t>(n_floats) * sizeof(float), buffer);
}

}  // namespace lowkey
