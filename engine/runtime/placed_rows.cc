#include "engine/runtime/placed_rows.h"

#include <algorithm>
#include <cstring>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::StatusOr<PlacedRows> PlacedRows::Create(absl::Span<const float> rows, int64_t n_out,
                                              Device* device) {
  PlacedRows placed;
  placed.device_ = device;
  const size_t n_bytes = rows.size() * sizeof(float);
  LK_ASSIGN_OR_RETURN(placed.rows_, Buffer::Allocate(n_bytes, device));
  LK_ASSIGN_OR_RETURN(placed.out_,
                      Buffer::Allocate(static_cast<size_t>(n_out) * sizeof(float), device));
  if (rows.empty()) return placed;
  if (device == nullptr) {
    std::memcpy(placed.rows_.data(), rows.data(), n_bytes);
  } else {
    device->Upload(rows.data(), placed.rows_.data(), static_cast<int64_t>(n_bytes));
  }
  return placed;
}

absl::Status PlacedRows::Fetch(absl::Span<float> out) const {
  const size_t n_bytes = out.size() * sizeof(float);
  if (device_ != nullptr) {
    return device_->Download(out_.data(), out.data(), static_cast<int64_t>(n_bytes));
  }
  std::memcpy(out.data(), out_.data(), n_bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MechanismPlace>> MechanismPlace::Create(
    const AttentionGeometry& geometry, int64_t cache_bytes, int64_t max_rows, Device* device) {
  auto place = std::make_unique<MechanismPlace>();
  const int64_t page_bytes = PageBytes(geometry), budget = std::max(cache_bytes, page_bytes);
  LK_ASSIGN_OR_RETURN(place->cache_, Cache::Create(budget, page_bytes, device));
  if (device == nullptr) return place;
  LK_ASSIGN_OR_RETURN(place->host_cache_, Cache::Create(budget, page_bytes));
  place->place_ = {device, place->host_cache_.get(), max_rows};
  return place;
}

}  // namespace lowkey
