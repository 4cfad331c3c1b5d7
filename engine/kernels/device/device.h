#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_DEVICE_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/base/tensor.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

struct DeviceKernels;  // engine/kernels/device/kernels.h

// A weight [n_out, n_in] on a device, row-major; narrow_weight.h has the layout of 8 bits. It must
// not outlive the device.
class DeviceWeight {
 public:
  DeviceWeight(Buffer data, int64_t n_out, int64_t n_in, StorageType type)
      : data_(std::move(data)), n_out_(n_out), n_in_(n_in), type_(type) {}

  const std::byte* data() const { return data_.data(); }
  int64_t n_out() const { return n_out_; }
  int64_t n_in() const { return n_in_; }
  StorageType type() const { return type_; }
  int64_t size_bytes() const { return static_cast<int64_t>(data_.size_bytes()); }

 private:
  Buffer data_;
  int64_t n_out_, n_in_;
  StorageType type_;
};

// y [n_rows, n_out] = x [n_rows, n_in] W^T + bias, or y += that. x is of RowTypeOf the weight's
// type, y is fp32. A row's bits do not depend on n_rows.
struct ProductArgs {
  const DeviceWeight* weight = nullptr;
  const void* x = nullptr;  // row i at i * ld_x elements
  int64_t ld_x = 0;
  int64_t n_rows = 0;
  float* y = nullptr;  // row i at y + i * ld_y
  int64_t ld_y = 0;
  const float* bias = nullptr;  // [n_out], or none
  GemmArgs::Into into = GemmArgs::Into::kOverwrite;
  // The result in bf16, in whole rows of ld_y numbers like y's, or none. With this set, `into` is
  // kOverwrite and y may hold anything afterwards.
  uint16_t* rounded = nullptr;
};

// out [n_rows, n_channels] = silu(gate) * up, in x's type, where the columns of the product, x W^T
// + bias, stand in groups of 16: gates of kGatedGroup channels, then their ups. MakeGatedWeight
// (weight.h) makes such weights.
inline constexpr int64_t kGatedGroup = 8;
struct GatedProductArgs {
  ProductArgs product;  // y is not read; it may be overwritten
  void* out = nullptr;
  int64_t n_channels = 0;
};

// ProductChoice says how products with weights of a shape are computed.
struct ProductChoice {
  struct Timing {
    int64_t n_rows;
    double microseconds;
  };

  int64_t n_out = 0, n_in = 0;
  StorageType type = StorageType::kFloat32;
  bool rounded = false;         // for results in bf16 (ProductArgs::rounded)
  std::string way;              // "tiles", "warpgroups", "plain" or "cublasLt by 5 methods"
  std::vector<Timing> timings;  // of the trials, with a cold cache; empty without trials
  std::string refused;          // which way was fast, but not right; empty: none
};

// Bytes on their way from a device to the host. They must not outlive the device.
class Fetched {
 public:
  virtual ~Fetched() = default;
  // Waits for the bytes, but not for work that was queued later. The pointer is valid while this
  // object lives. Errors are the device's.
  virtual absl::StatusOr<const std::byte*> Wait() = 0;
};

// An accelerator with memory of its own and one queue of work, used from one thread. All methods
// but Allocate and Prepare only queue, in order, and return at once; pointers that queued work
// reads or writes are the device's.
//
// An error of queued work (a fault of the device) shows at the next wait and in status(), and
// stays: results since then cannot be trusted, and the device takes no more work.
class Device : public Memory {
 public:
  virtual std::string name() const = 0;  // "cuda:0 NVIDIA H200"
  virtual const DeviceKernels& kernels() const = 0;
  virtual absl::Status status() const = 0;
  // Returns how much of the device's memory is free.
  virtual int64_t free_bytes() const = 0;
  // Returns the bytes of shared memory that a thread block may have: 163 KiB on an A100, 227 on
  // Hopper and later data center devices, 99 on the others. A kernel that asks for more breaks the
  // device.
  virtual int64_t most_shared_bytes() const = 0;

  // Copies from the host to the device. `from` may change as soon as this returns.
  virtual void Upload(const void* from, void* to, int64_t size_bytes) = 0;
  // Copies from the device to the host, and waits for all that was queued before.
  virtual absl::Status Download(const void* from, void* to, int64_t size_bytes) = 0;
  // Copies without waiting: work that is queued later may overwrite `from`.
  virtual std::unique_ptr<Fetched> Fetch(const void* from, int64_t size_bytes) = 0;
  virtual absl::Status Wait() = 0;

  // Queues the work that `queue` queues. Work that is asked for again is kept under `key`: from the
  // third call on it is queued at once, without calling `queue`, unless it was forgotten meanwhile.
  // The second call may call `queue` twice. `queue` may queue only kernels and products, with the
  // same arguments every time.
  virtual void Repeat(uint64_t key, absl::FunctionRef<void()> queue) = 0;

  // Chooses how products with weights of this shape are computed, before the first; waits.
  // MakeDeviceWeight (weight.h) calls this. RESOURCE_EXHAUSTED when there is no memory to try
  // products in.
  virtual absl::Status Prepare(const DeviceWeight&) { return absl::OkStatus(); }
  // Finds out whether warpgroups compute exact attention over bf16 to the bits of other kernels,
  // before the first such attention; waits. RESOURCE_EXHAUSTED when there is no memory to try it
  // in.
  virtual absl::Status PrepareAttention(int64_t /*head_dim*/) { return absl::OkStatus(); }
  virtual bool AttendsByWarpgroups(int64_t /*head_dim*/) const { return false; }
  // Returns what Prepare chose.
  virtual std::vector<ProductChoice> product_choices() const { return {}; }
  virtual void Multiply(const ProductArgs& args) = 0;
  virtual void MultiplyGated(const GatedProductArgs& args) = 0;
};

// Returns a copy of a list in the device's memory. RESOURCE_EXHAUSTED.
template <typename T>
absl::StatusOr<Buffer> Uploaded(const std::vector<T>& items, Device& device) {
  const size_t n_bytes = items.size() * sizeof(T);
  absl::StatusOr<Buffer> there = Buffer::Allocate(n_bytes, &device);
  if (there.ok() && n_bytes > 0) {
    device.Upload(items.data(), there->data(), static_cast<int64_t>(n_bytes));
  }
  return there;
}

// Opens the device "cuda:N". FAILED_PRECONDITION where this build, or this machine, has none;
// INVALID_ARGUMENT for any other name.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_DEVICE_H_
