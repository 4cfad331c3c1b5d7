#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_NATIVE_DEVICE_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_NATIVE_DEVICE_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/kernels/cuda/grid/launch.h"
#include "engine/kernels/cuda/native/graphs.h"
#include "engine/kernels/cuda/native/memory_pool.h"
#include "engine/kernels/cuda/native/products/products.h"
#include "engine/kernels/cuda/native/staging.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// An NVIDIA GPU, through one stream of the CUDA runtime.
class NativeDevice : public Device {
 public:
  // Opens GPU `index`. FAILED_PRECONDITION without a driver, or where there are `index` devices or
  // fewer.
  static absl::StatusOr<std::unique_ptr<Device>> Open(int64_t index);
  ~NativeDevice() override;

  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) override;
  void Free(std::byte* p) override;
  void Copy(const std::byte* from, std::byte* to, int64_t size_bytes) override;

  std::string name() const override { return name_; }
  const DeviceKernels& kernels() const override;
  absl::Status status() const override { return status_; }
  int64_t free_bytes() const override;
  int64_t most_shared_bytes() const override { return most_shared_bytes_; }
  void Upload(const void* from, void* to, int64_t size_bytes) override;
  absl::Status Download(const void* from, void* to, int64_t size_bytes) override;
  std::unique_ptr<Fetched> Fetch(const void* from, int64_t size_bytes) override;
  absl::Status Wait() override;
  void Repeat(uint64_t key, absl::FunctionRef<void()> queue) override;
  absl::Status Prepare(const DeviceWeight& weight) override;
  // The environment variable LOWKEY_CUDA_ATTENTION=tiles leaves warpgroups out.
  absl::Status PrepareAttention(int64_t head_dim) override;
  bool AttendsByWarpgroups(int64_t head_dim) const override {
    const auto proven = warpgroup_heads_.find(head_dim);
    return proven != warpgroup_heads_.end() && proven->second;
  }
  std::vector<ProductChoice> product_choices() const override { return products_->Choices(); }
  void Multiply(const ProductArgs& args) override;
  void MultiplyGated(const GatedProductArgs& args) override;

  // Implements LaunchNative.
  void LaunchKernel(const void* kernel, const LaunchShape& shape, const void* args);

  cudaStream_t stream() const { return stream_; }

 private:
  class Landed;

  explicit NativeDevice(int index) : index_(index) {}
  absl::Status Start();
  // Makes this the thread's device, before every call of CUDA. False once the device is broken.
  bool Enter() const;
  // Does the same for calls that cannot be part of repeated work, which is then not captured.
  bool EnterUncaptured();
  // Keeps the first error. While work is captured for Repeat an error only spoils the capture.
  void Note(absl::Status status);
  absl::Status AllowShared(const void* kernel, int64_t shared_bytes);

  const int index_;
  std::string name_;
  int64_t most_shared_bytes_ = 0;
  bool has_warpgroups_ = false;
  std::unordered_map<int64_t, bool> warpgroup_heads_;  // by size: whether they attend as tiles do
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<MemoryPool> memory_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Graphs> graphs_;
  std::unique_ptr<Products> products_;
  std::unordered_map<const void*, int64_t> allowed_shared_bytes_;  // by kernel
  absl::Status status_;
  enum class Queueing { kNow, kCaptured, kCaptureFailed } queueing_ = Queueing::kNow;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_NATIVE_DEVICE_H_
