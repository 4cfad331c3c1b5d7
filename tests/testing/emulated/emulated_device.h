#ifndef LOWKEY_TESTS_TESTING_EMULATED_EMULATED_DEVICE_H_
#define LOWKEY_TESTS_TESTING_EMULATED_EMULATED_DEVICE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/device/device.h"
#include "engine/kernels/device/repeated_work.h"

namespace lowkey {

// A device for tests that runs the kernels of engine/kernels/cuda on the host, in the emulated
// grid; products are plain loops, memory is the heap's. As on a GPU, queued work runs, in order,
// when somebody waits for it.
class EmulatedDevice : public Device {
 public:
  EmulatedDevice() = default;

  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) override;
  void Free(std::byte* p) override;
  void Copy(const std::byte* from, std::byte* to, int64_t size_bytes) override;

  std::string name() const override { return "emulated"; }
  const DeviceKernels& kernels() const override;
  absl::Status status() const override { return status_; }
  int64_t free_bytes() const override { return int64_t{1} << 30; }
  int64_t most_shared_bytes() const override;
  void Upload(const void* from, void* to, int64_t size_bytes) override;
  absl::Status Download(const void* from, void* to, int64_t size_bytes) override;
  std::unique_ptr<Fetched> Fetch(const void* from, int64_t size_bytes) override;
  absl::Status Wait() override;
  void Repeat(uint64_t key, absl::FunctionRef<void()> queue) override;
  void Multiply(const ProductArgs& args) override;
  void MultiplyGated(const GatedProductArgs& args) override;

  void Enqueue(std::function<void()> work) { queue_.push_back(std::move(work)); }
  // Makes the device fail at the next wait.
  void Break(absl::Status status) { breaks_with_ = std::move(status); }
  // How often Repeat queued the work that it had kept.
  int64_t n_repeats() const { return n_repeats_; }
  // How much work Repeat has kept: on a GPU, how many graphs were made.
  int64_t n_kept() const { return n_kept_; }
  // The most results of Fetch at any time that nobody had waited for.
  int64_t most_unread() const { return most_unread_; }

 private:
  class Reading;

  // Runs queued work, the oldest first, until n_run pieces of all work ever queued have run.
  absl::Status RunUntil(int64_t n_run);

  absl::Status status_, breaks_with_;
  std::map<std::byte*, Buffer> taken_;
  std::deque<std::function<void()>> queue_;
  RepeatedWork<std::vector<std::function<void()>>> repeated_;
  int64_t n_repeats_ = 0, n_kept_ = 0, n_run_ = 0, n_unread_ = 0, most_unread_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_EMULATED_EMULATED_DEVICE_H_
