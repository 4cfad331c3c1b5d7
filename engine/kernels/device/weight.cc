#include "engine/kernels/device/weight.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// Rows of a task: enough to be worth its start, few enough to even out threads.
constexpr int64_t kTaskRows = 16;

NarrowLayout LayoutOf(absl::Span<const TensorView> parts, StorageType type) {
  NarrowLayout layout{type, 0, parts[0].shape[1]};
  for (const TensorView& part : parts) layout.n_out += part.shape[0];
  return layout;
}

}  // namespace

std::vector<std::byte> NarrowWeight(absl::Span<const TensorView> parts, StorageType type,
                                    ThreadPool& pool) {
  const NarrowLayout layout = LayoutOf(parts, type);
  std::vector<std::byte> weight(layout.size_bytes());
  pool.ParallelFor((layout.n_out + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
    const int64_t first = task * kTaskRows;
    NarrowRows(parts, layout, {first, std::min(first + kTaskRows, layout.n_out)}, weight.data());
  });
  return weight;
}

absl::StatusOr<std::unique_ptr<DeviceWeight>> MakeDeviceWeight(absl::Span<const TensorView> parts,
                                                               StorageType type, ThreadPool& pool,
                                                               Device& device) {
  if (!IsNarrow(type)) return device.MakeWeight(parts, type);
  const NarrowLayout layout = LayoutOf(parts, type);
  LK_ASSIGN_OR_RETURN(Buffer data,
                      Buffer::Allocate(static_cast<size_t>(layout.size_bytes()), &device));
  const std::vector<std::byte> weight = NarrowWeight(parts, type, pool);
  device.Upload(weight.data(), data.data(), layout.size_bytes());
  LK_RETURN_IF_ERROR(device.status());
  return std::make_unique<DeviceWeight>(std::move(data), layout.n_out, layout.n_in, type);
}

}  // namespace lowkey
