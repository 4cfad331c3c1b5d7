#include "tests/testing/emulated/emulated_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/products/products.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

float At(const void* data, StorageType type, int64_t i) {
  if (type == StorageType::kFloat32) return static_cast<const float*>(data)[i];
  return ToFloat(BFloat16{static_cast<const uint16_t*>(data)[i]});
}

// Reads row j of a weight as floats.
void ReadRow(const DeviceWeight& w, int64_t j, float* row) {
  if (IsNarrow(w.type())) return WidenRow({w.type(), w.n_out(), w.n_in()}, w.data(), j, row);
  for (int64_t k = 0; k < w.n_in(); ++k) row[k] = At(w.data(), w.type(), j * w.n_in() + k);
}

void MultiplyColumn(const ProductArgs& a, int64_t j, const std::vector<float>& weight) {
  const StorageType row_type = RowTypeOf(a.weight->type());
  for (int64_t row = 0; row < a.n_rows; ++row) {
    float sum = 0;
    for (int64_t k = 0; k < a.weight->n_in(); ++k) {
      sum += At(a.x, row_type, row * a.ld_x + k) * weight[k];
    }
    if (a.bias != nullptr) sum += a.bias[j];
    if (a.rounded != nullptr) {
      a.rounded[row * a.ld_y + j] = ToBFloat16(sum).bits;
      continue;
    }
    float& y = a.y[row * a.ld_y + j];
    y = a.into == GemmArgs::Into::kAccumulate ? y + sum : sum;
  }
}

}  // namespace

namespace emulated {

void Enqueue(Device& device, std::function<void()> work) {
  static_cast<EmulatedDevice&>(device).Enqueue(std::move(work));
}

}  // namespace emulated

const DeviceKernels& EmulatedDevice::kernels() const { return CudaKernels(); }

int64_t EmulatedDevice::most_shared_bytes() const { return emulated::MostSharedBytes(); }

absl::StatusOr<std::byte*> EmulatedDevice::Allocate(int64_t size_bytes) {
  LK_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(static_cast<size_t>(size_bytes)));
  std::byte* p = memory.data();
  taken_.emplace(p, std::move(memory));
  return p;
}

void EmulatedDevice::Free(std::byte* p) {
  (void)Wait();  // queued work may still read it
  taken_.erase(p);
}

void EmulatedDevice::Copy(const std::byte* from, std::byte* to, int64_t size_bytes) {
  Enqueue([=] { std::memcpy(to, from, static_cast<size_t>(size_bytes)); });
}

void EmulatedDevice::Upload(const void* from, void* to, int64_t size_bytes) {
  const auto* bytes = static_cast<const std::byte*>(from);
  Enqueue([kept = std::vector<std::byte>(bytes, bytes + size_bytes), to] {
    std::memcpy(to, kept.data(), kept.size());
  });
}

absl::Status EmulatedDevice::Download(const void* from, void* to, int64_t size_bytes) {
  LK_RETURN_IF_ERROR(Wait());
  std::memcpy(to, from, static_cast<size_t>(size_bytes));
  return absl::OkStatus();
}

// A result of Fetch, counted as unread until the first wait.
class EmulatedDevice::Reading : public Fetched {
 public:
  Reading(EmulatedDevice& device, const void* from, int64_t size_bytes)
      : device_(device), bytes_(std::make_shared<std::vector<std::byte>>(size_bytes)) {
    device_.Enqueue([to = bytes_, from] { std::memcpy(to->data(), from, to->size()); });
    end_ = device_.n_run_ + static_cast<int64_t>(device_.queue_.size());
    device_.most_unread_ = std::max(device_.most_unread_, ++device_.n_unread_);
  }
  ~Reading() override { Read(); }

  absl::StatusOr<const std::byte*> Wait() override {
    Read();
    LK_RETURN_IF_ERROR(device_.RunUntil(end_));
    return bytes_->data();
  }

 private:
  void Read() { device_.n_unread_ -= std::exchange(n_unread_, 0); }

  EmulatedDevice& device_;
  const std::shared_ptr<std::vector<std::byte>> bytes_;  // queued work shares it
  int64_t end_ = 0, n_unread_ = 1;
};

std::unique_ptr<Fetched> EmulatedDevice::Fetch(const void* from, int64_t size_bytes) {
  return std::make_unique<Reading>(*this, from, size_bytes);
}

absl::Status EmulatedDevice::RunUntil(int64_t n_run) {
  if (status_.ok()) status_ = breaks_with_;
  if (!status_.ok()) queue_.clear();
  while (n_run_ < n_run && !queue_.empty()) {
    const auto work = std::move(queue_.front());
    queue_.pop_front();
    ++n_run_;
    work();
  }
  return status_;
}

absl::Status EmulatedDevice::Wait() {
  return RunUntil(n_run_ + static_cast<int64_t>(queue_.size()));
}

void EmulatedDevice::Repeat(uint64_t key, absl::FunctionRef<void()> queue) {
  if (const auto* kept = repeated_.Find(key); kept != nullptr) {
    ++n_repeats_;
    queue_.insert(queue_.end(), kept->begin(), kept->end());
    return;
  }
  const bool keeps = repeated_.IsSecond(key);
  const size_t first = queue_.size();
  queue();
  LK_CHECK(queue_.size() >= first);  // else `queue` waited
  if (!keeps) return;
  ++n_kept_;
  (void)repeated_.Keep(key, {queue_.begin() + static_cast<int64_t>(first), queue_.end()});
}

// Takes the tiles, as a GPU may, so that tests of models see their results.
void EmulatedDevice::MultiplyGated(const GatedProductArgs& args) {
  if (TilesTake(args.product)) return MultiplyGatedByTiles(*this, args);
  GateAfter(*this, args, [this](const ProductArgs& product) { Multiply(product); });
}

void EmulatedDevice::Multiply(const ProductArgs& args) {
  Enqueue([args] {
    std::vector<float> weight(args.weight->n_in());
    for (int64_t j = 0; j < args.weight->n_out(); ++j) {
      ReadRow(*args.weight, j, weight.data());
      MultiplyColumn(args, j, weight);
    }
  });
}

}  // namespace lowkey
