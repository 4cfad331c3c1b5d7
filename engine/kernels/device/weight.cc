#include "engine/kernels/device/weight.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// Rows of a task: enough to be worth its start, few enough to even out threads.
constexpr int64_t kTaskRows = 16;

// Bytes of a weight that are converted at a time before they are uploaded.
constexpr int64_t kChunkBytes = int64_t{4} << 20;

// The sizes of stacked parts, which have the same n_in.
struct Sizes {
  int64_t n_out, n_in;
};
Sizes SizesOf(absl::Span<const TensorView> parts) {
  LK_CHECK(!parts.empty());
  Sizes sizes{0, parts[0].shape[1]};
  for (const TensorView& part : parts) {
    LK_CHECK(part.shape[1] == sizes.n_in);
    sizes.n_out += part.shape[0];
  }
  return sizes;
}

// Returns whether the elements are stored, in order, as the device wants them.
bool IsStoredAs(const TensorView& part, StorageType type) {
  const DType wanted = type == StorageType::kFloat32 ? DType::kF32 : DType::kBF16;
  return part.dtype == wanted && part.interleaved_rows == 0;
}

// Writes the rows in fp32 or bf16 to `to`, on the device.
void UploadRows(const TensorView& part, StorageType type, Device& device, std::byte* to) {
  const int64_t n_rows = part.shape[0], n_in = part.shape[1], row_bytes = n_in * StorageBytes(type);
  if (IsStoredAs(part, type)) return device.Upload(part.data, to, n_rows * row_bytes);
  const int64_t chunk_rows = std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(row_bytes, 1), 1,
                                                 std::max<int64_t>(n_rows, 1));
  std::vector<float> rows(chunk_rows * n_in);
  std::vector<uint16_t> rounded(type == StorageType::kFloat32 ? 0 : rows.size());
  for (int64_t first = 0; first < n_rows; first += chunk_rows) {
    const int64_t n = std::min(chunk_rows, n_rows - first);
    for (int64_t i = 0; i < n; ++i) LoadRow(part, first + i, rows.data() + i * n_in);
    const void* from = rows.data();
    if (!rounded.empty()) {
      Kernels().to_bf16(rows.data(), rounded.data(), n * n_in);
      from = rounded.data();
    }
    device.Upload(from, to + first * row_bytes, n * row_bytes);
  }
}

}  // namespace

std::vector<std::byte> NarrowWeight(absl::Span<const TensorView> parts, StorageType type,
                                    ThreadPool& pool) {
  const auto [n_out, n_in] = SizesOf(parts);
  const NarrowLayout layout{type, n_out, n_in};
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
  const auto [n_out, n_in] = SizesOf(parts);
  const int64_t n_bytes = WeightBytes(type, n_out, n_in);
  LK_ASSIGN_OR_RETURN(Buffer data, Buffer::Allocate(static_cast<size_t>(n_bytes), &device));
  if (IsNarrow(type)) {
    device.Upload(NarrowWeight(parts, type, pool).data(), data.data(), n_bytes);
  } else {
    std::byte* to = data.data();
    for (const TensorView& part : parts) {
      UploadRows(part, type, device, to);
      to += part.shape[0] * n_in * StorageBytes(type);
    }
  }
  auto weight = std::make_unique<DeviceWeight>(std::move(data), n_out, n_in, type);
  LK_RETURN_IF_ERROR(device.Prepare(*weight));
  LK_RETURN_IF_ERROR(device.status());
  return weight;
}

}  // namespace lowkey
