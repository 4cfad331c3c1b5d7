#include "engine/kernels/cuda/native/native_device.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/cuda/native/errors.h"
#include "engine/kernels/cuda/native/prove_attention.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// Each thread has a current device of its own in CUDA, 0 at first; to remember it costs less than
// to ask.
cudaError_t MakeCurrent(int index) {
  static thread_local int current = -1;
  if (current == index) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) current = index;
  return error;
}

std::string NameOf(const void* kernel) {
#if CUDART_VERSION >= 12030
  const char* name = nullptr;
  if (cudaFuncGetName(&name, kernel) == cudaSuccess) return name;
#else
  (void)kernel;
#endif
  return "kernel";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NativeDevice::Open(int64_t index) {
  int n_devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&n_devices);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    // The first error is also that of a machine without any driver.
    return absl::FailedPreconditionError(absl::StrCat("no GPU, or no driver for CUDA ",
                                                      CUDART_VERSION / 1000, " of one (",
                                                      cudaGetErrorString(error), ")"));
  }
  LK_CUDA_RETURN_IF_ERROR(error, "devices");
  if (index >= n_devices) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", index, ", expected less than ", n_devices, ", the GPUs there are"));
  }
  auto device = absl::WrapUnique(new NativeDevice(static_cast<int>(index)));
  LK_RETURN_IF_ERROR(device->Start());
  return device;
}

absl::Status NativeDevice::Start() {
  LK_CUDA_RETURN_IF_ERROR(MakeCurrent(index_), "device");
  cudaDeviceProp properties{};
  LK_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, index_), "device");
  name_ = absl::StrCat("cuda:", index_, " ", properties.name);
  most_shared_bytes_ = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  has_warpgroups_ = properties.major == 9 && properties.minor == 0;
  LK_CUDA_RETURN_IF_ERROR(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  LK_ASSIGN_OR_RETURN(memory_, MemoryPool::Create(index_, stream_));
  LK_ASSIGN_OR_RETURN(staging_, Staging::Create(stream_));
  graphs_ = std::make_unique<Graphs>(stream_);
  LK_ASSIGN_OR_RETURN(products_, Products::Create(*this, stream_, has_warpgroups_));
  return absl::OkStatus();
}

NativeDevice::~NativeDevice() {
  (void)MakeCurrent(index_);
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);
  products_ = nullptr;
  graphs_ = nullptr;
  staging_ = nullptr;
  if (stream_ != nullptr) (void)cudaStreamSynchronize(stream_);  // for memory freed last
  memory_ = nullptr;
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

const DeviceKernels& NativeDevice::kernels() const { return CudaKernels(); }

bool NativeDevice::Enter() const {
  if (!status_.ok() || queueing_ == Queueing::kCaptureFailed) return false;
  (void)MakeCurrent(index_);  // Start has done this without an error
  return true;
}

bool NativeDevice::EnterUncaptured() {
  if (queueing_ == Queueing::kCaptured) queueing_ = Queueing::kCaptureFailed;
  return Enter();
}

void NativeDevice::Note(absl::Status status) {
  if (status.ok()) return;
  if (queueing_ == Queueing::kNow) {
    status_.Update(absl::Status(status.code(), absl::StrCat(name_, ": ", status.message())));
  } else {
    queueing_ = Queueing::kCaptureFailed;
  }
}

absl::StatusOr<std::byte*> NativeDevice::Allocate(int64_t size_bytes) {
  if (queueing_ != Queueing::kNow) {
    queueing_ = Queueing::kCaptureFailed;
    return absl::FailedPreconditionError("memory asked for within repeated work");
  }
  if (!Enter()) return status_;
  auto allocated = memory_->Allocate(size_bytes);
  // A lack of memory is the caller's affair; any other error is the device's.
  if (!allocated.ok() && !absl::IsResourceExhausted(allocated.status())) Note(allocated.status());
  return allocated;
}

void NativeDevice::Free(std::byte* p) {
  if (EnterUncaptured()) Note(CudaStatus(memory_->Free(p), "free"));
}

void NativeDevice::Copy(const std::byte* from, std::byte* to, int64_t size_bytes) {
  if (!Enter()) return;
  Note(CudaStatus(
      cudaMemcpyAsync(to, from, static_cast<size_t>(size_bytes), cudaMemcpyDeviceToDevice, stream_),
      "copy"));
}

int64_t NativeDevice::free_bytes() const { return Enter() ? memory_->free_bytes() : 0; }

void NativeDevice::Upload(const void* from, void* to, int64_t size_bytes) {
  if (EnterUncaptured()) Note(staging_->Upload(from, to, size_bytes));
}

absl::Status NativeDevice::Download(const void* from, void* to, int64_t size_bytes) {
  if (EnterUncaptured()) Note(staging_->Download(from, to, size_bytes));
  return status_;
}

// The result of Fetch. Without a landing the device is broken, or `error` says why this copy alone
// was not queued.
class NativeDevice::Landed : public Fetched {
 public:
  Landed(NativeDevice& device, Staging::Landing* landing, absl::Status error)
      : device_(device), landing_(landing), error_(std::move(error)) {}
  ~Landed() override {
    if (landing_ != nullptr) device_.staging_->Return(landing_);
  }

  absl::StatusOr<const std::byte*> Wait() override {
    if (landing_ != nullptr && device_.Enter()) {
      device_.Note(CudaStatus(cudaEventSynchronize(landing_->landed), "queued work"));
    }
    LK_RETURN_IF_ERROR(device_.status_);
    LK_RETURN_IF_ERROR(error_);
    LK_CHECK(landing_ != nullptr);  // else Fetch was called within repeated work
    return landing_->memory;
  }

 private:
  NativeDevice& device_;
  Staging::Landing* const landing_;
  const absl::Status error_;
};

std::unique_ptr<Fetched> NativeDevice::Fetch(const void* from, int64_t size_bytes) {
  Staging::Landing* landing = nullptr;
  absl::Status error;
  if (EnterUncaptured()) {
    auto fetched = staging_->Fetch(from, size_bytes);
    if (fetched.ok()) landing = *fetched;
    if (absl::IsResourceExhausted(fetched.status())) {
      // Pinned memory that the host does not have now is no fault of the device.
      error = fetched.status();
      (void)cudaGetLastError();
    } else {
      Note(fetched.status());
    }
  }
  return std::make_unique<Landed>(*this, landing, std::move(error));
}

absl::Status NativeDevice::Wait() {
  if (EnterUncaptured()) Note(CudaStatus(cudaStreamSynchronize(stream_), "queued work"));
  return status_;
}

void NativeDevice::Repeat(uint64_t key, absl::FunctionRef<void()> queue) {
  if (!Enter()) return;
  cudaError_t error = cudaSuccess;
  if (graphs_->Launch(key, error)) {
    Note(CudaStatus(error, "graph"));
    return;
  }
  // The first time, work is not captured: a kernel's first launch may load the kernel, which is not
  // allowed then.
  if (!graphs_->IsWanted(key)) return queue();
  queueing_ = Queueing::kCaptured;
  graphs_->Capture(key, [&] {
    queue();
    return queueing_ == Queueing::kCaptured;
  });
  queueing_ = Queueing::kNow;
  if (!graphs_->Launch(key, error)) return queue();
  Note(CudaStatus(error, "graph"));
}

absl::Status NativeDevice::Prepare(const DeviceWeight& weight) {
  if (IsNarrow(weight.type()) || !Enter()) return status_;  // only our own kernels read narrow ones
  absl::Status chosen = products_->Choose(weight);
  if (absl::IsResourceExhausted(chosen)) return chosen;  // room for the measurement's rows
  Note(std::move(chosen));
  return status_;
}

absl::Status NativeDevice::PrepareAttention(int64_t head_dim) {
  const char* wanted = std::getenv("LOWKEY_CUDA_ATTENTION");
  const bool is_made_for = head_dim == 64 || head_dim == 128;
  if (!has_warpgroups_ || !is_made_for || warpgroup_heads_.contains(head_dim) ||
      (wanted != nullptr && std::strcmp(wanted, "tiles") == 0) || !Enter()) {
    return status_;
  }
  LK_ASSIGN_OR_RETURN(const bool attend_alike, WarpgroupsAttendAsTilesDo(*this, head_dim));
  warpgroup_heads_.emplace(head_dim, attend_alike);
  return status_;
}

void NativeDevice::Multiply(const ProductArgs& args) {
  if (args.n_rows > 0 && Enter()) Note(products_->Multiply(args));
}

void NativeDevice::MultiplyGated(const GatedProductArgs& args) {
  if (args.product.n_rows > 0 && Enter()) Note(products_->MultiplyGated(args));
}

absl::Status NativeDevice::AllowShared(const void* kernel, int64_t shared_bytes) {
  int64_t& allowed = allowed_shared_bytes_[kernel];
  if (shared_bytes <= allowed) return absl::OkStatus();
  LK_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes)),
      absl::StrCat(NameOf(kernel), ": ", shared_bytes, " bytes of shared memory"));
  allowed = shared_bytes;
  return absl::OkStatus();
}

void NativeDevice::LaunchKernel(const void* kernel, const LaunchShape& shape, const void* args) {
  if (shape.blocks_x == 0 || shape.blocks_y == 0 || shape.blocks_z == 0 || !Enter()) return;
  // A kernel gets more than 48 KiB, with its own declared memory, only after this call.
  if (absl::Status status = AllowShared(kernel, shape.shared_bytes); !status.ok()) {
    Note(std::move(status));
    return;
  }
  const dim3 grid(static_cast<unsigned>(shape.blocks_x), static_cast<unsigned>(shape.blocks_y),
                  static_cast<unsigned>(shape.blocks_z));
  void* arguments[] = {const_cast<void*>(args)};
  const cudaError_t error =
      cudaLaunchKernel(kernel, grid, dim3(static_cast<unsigned>(shape.threads)), arguments,
                       static_cast<size_t>(shape.shared_bytes), stream_);
  if (error != cudaSuccess) Note(CudaStatus(error, NameOf(kernel)));
}

void LaunchNative(Device& device, const void* kernel, const LaunchShape& shape, const void* args) {
  static_cast<NativeDevice&>(device).LaunchKernel(kernel, shape, args);
}

}  // namespace lowkey
