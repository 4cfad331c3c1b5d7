#include "engine/kernels/device/weight.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// Rows of a task: enough to be worth its start, few enough to even out threads.
constexpr int64_t kTaskRows = 16;

// Bytes of a weight that are converted at a time before they are uploaded.
constexpr int64_t kChunkBytes = int64_t{4} << 20;

// Rows of matrices with the same n_in, one below the other.
struct Stack {
  std::vector<RowRange> parts = {};
  int64_t n_out = 0, n_in = 0;

  void Add(const TensorView* matrix, int64_t first, int64_t n_rows) {
    if (n_rows == 0) return;
    parts.push_back({matrix, first, n_rows});
    n_out += n_rows;
  }
};

Stack StackOf(absl::Span<const TensorView> parts) {
  LK_CHECK(!parts.empty());
  Stack stack{.n_in = parts[0].shape[1]};
  for (const TensorView& part : parts) {
    LK_CHECK(part.shape[1] == stack.n_in);
    stack.Add(&part, 0, part.shape[0]);
  }
  return stack;
}

// Calls add with the channels of each group, and with how many are missing in the last.
void EachGroup(int64_t n_channels,
               absl::FunctionRef<void(int64_t first, int64_t n, int64_t n_missing)> add) {
  for (int64_t first = 0; first < n_channels; first += kGatedGroup) {
    const int64_t n = std::min(kGatedGroup, n_channels - first);
    add(first, n, kGatedGroup - n);
  }
}

// Returns whether the elements are stored, in order, as the device wants them.
bool IsStoredAs(const TensorView& part, StorageType type) {
  const DType wanted = type == StorageType::kFloat32 ? DType::kF32 : DType::kBF16;
  return part.dtype == wanted && part.interleaved_rows == 0;
}

// Writes the rows in fp32 or bf16 to `to`, on the device, whose memory begins as zeros.
void UploadRows(const RowRange& part, StorageType type, Device& device, std::byte* to) {
  if (part.matrix == nullptr) return;
  const int64_t n_rows = part.n_rows, n_in = part.matrix->shape[1];
  const int64_t row_bytes = n_in * StorageBytes(type);
  if (IsStoredAs(*part.matrix, type)) {
    return device.Upload(part.matrix->data + part.first * row_bytes, to, n_rows * row_bytes);
  }
  const int64_t chunk_rows =
      std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(row_bytes, 1), 1, n_rows);
  std::vector<float> rows(chunk_rows * n_in);
  std::vector<uint16_t> rounded(type == StorageType::kFloat32 ? 0 : rows.size());
  for (int64_t first = 0; first < n_rows; first += chunk_rows) {
    const int64_t n = std::min(chunk_rows, n_rows - first);
    for (int64_t i = 0; i < n; ++i) {
      LoadRow(*part.matrix, part.first + first + i, rows.data() + i * n_in);
    }
    const void* from = rows.data();
    if (!rounded.empty()) {
      Kernels().to_bf16(rows.data(), rounded.data(), n * n_in);
      from = rounded.data();
    }
    device.Upload(from, to + first * row_bytes, n * row_bytes);
  }
}

std::vector<std::byte> Narrowed(const Stack& stack, StorageType type, ThreadPool& pool) {
  const NarrowLayout layout{type, stack.n_out, stack.n_in};
  std::vector<std::byte> weight(layout.size_bytes());
  pool.ParallelFor((layout.n_out + kTaskRows - 1) / kTaskRows, [&](int64_t task, int) {
    const int64_t first = task * kTaskRows;
    NarrowRows(stack.parts, layout, {first, std::min(first + kTaskRows, layout.n_out)},
               weight.data());
  });
  return weight;
}

absl::StatusOr<std::unique_ptr<DeviceWeight>> MakeWeight(const Stack& stack, StorageType type,
                                                         ThreadPool& pool, Device& device) {
  const int64_t n_bytes = WeightBytes(type, stack.n_out, stack.n_in);
  LK_ASSIGN_OR_RETURN(Buffer data, Buffer::Allocate(static_cast<size_t>(n_bytes), &device));
  if (IsNarrow(type)) {
    device.Upload(Narrowed(stack, type, pool).data(), data.data(), n_bytes);
  } else {
    std::byte* to = data.data();
    for (const RowRange& part : stack.parts) {
      UploadRows(part, type, device, to);
      to += part.n_rows * stack.n_in * StorageBytes(type);
    }
  }
  auto weight = std::make_unique<DeviceWeight>(std::move(data), stack.n_out, stack.n_in, type);
  LK_RETURN_IF_ERROR(device.Prepare(*weight));
  LK_RETURN_IF_ERROR(device.status());
  return weight;
}

}  // namespace

std::vector<std::byte> NarrowWeight(absl::Span<const TensorView> parts, StorageType type,
                                    ThreadPool& pool) {
  return Narrowed(StackOf(parts), type, pool);
}

absl::StatusOr<std::unique_ptr<DeviceWeight>> MakeDeviceWeight(absl::Span<const TensorView> parts,
                                                               StorageType type, ThreadPool& pool,
                                                               Device& device) {
  return MakeWeight(StackOf(parts), type, pool, device);
}

absl::StatusOr<std::unique_ptr<DeviceWeight>> MakeGatedWeight(const TensorView& gate,
                                                              const TensorView& up,
                                                              StorageType type, ThreadPool& pool,
                                                              Device& device) {
  LK_CHECK(gate.shape == up.shape);
  Stack stack{.n_in = gate.shape[1]};
  EachGroup(gate.shape[0], [&](int64_t first, int64_t n, int64_t n_missing) {
    for (const TensorView* half : {&gate, &up}) {
      stack.Add(half, first, n);
      stack.Add(nullptr, 0, n_missing);
    }
  });
  return MakeWeight(stack, type, pool, device);
}

std::vector<float> GatedBias(const std::vector<float>& gate, const std::vector<float>& up) {
  std::vector<float> bias;
  LK_CHECK(gate.size() == up.size());
  EachGroup(static_cast<int64_t>(gate.size()), [&](int64_t first, int64_t n, int64_t n_missing) {
    for (const auto* half : {&gate, &up}) {
      bias.insert(bias.end(), half->begin() + first, half->begin() + first + n);
      bias.insert(bias.end(), n_missing, 0.0f);
    }
  });
  return bias;
}

}  // namespace lowkey
