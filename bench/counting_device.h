#ifndef LOWKEY_BENCH_COUNTING_DEVICE_H_
#define LOWKEY_BENCH_COUNTING_DEVICE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/device/device.h"

namespace lowkey {

// Sums up what launches of one kind ask for.
struct LaunchCount {
  int64_t launches = 0;
  double bytes = 0;  // of the device's memory, read and written; what is read again is counted once
  double flops = 0;  // multiplications and additions of products
};

// A device that computes nothing: it counts what is queued. Its memory is the host's, and holds
// small uploads alone. It takes the launches of standard attention in pages of fp32 and bf16.
class CountingDevice : public Device {
 public:
  // Returns counts by kind, in the order of the first launch of each.
  const std::vector<std::pair<std::string, LaunchCount>>& counts() const { return counts_; }
  void Reset() { counts_.clear(); }
  void Count(const std::string& kind, double bytes, double flops = 0);

  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) override;
  void Free(std::byte* p) override { taken_.erase(p); }
  void Copy(const std::byte*, std::byte*, int64_t) override {}
  std::string name() const override { return "counting"; }
  const DeviceKernels& kernels() const override;
  absl::Status status() const override { return absl::OkStatus(); }
  int64_t free_bytes() const override { return int64_t{8} << 30; }
  int64_t most_shared_bytes() const override { return 227 << 10; }
  void Upload(const void* from, void* to, int64_t size_bytes) override;
  absl::Status Download(const void*, void*, int64_t) override { return absl::OkStatus(); }
  std::unique_ptr<Fetched> Fetch(const void*, int64_t) override { return nullptr; }
  absl::Status Wait() override { return absl::OkStatus(); }
  void Repeat(uint64_t, absl::FunctionRef<void()> queue) override { queue(); }
  void Multiply(const ProductArgs& args) override;
  void MultiplyGated(const GatedProductArgs& args) override;

 private:
  void CountProduct(const std::string& kind, const ProductArgs& args, double out_bytes);

  std::vector<std::pair<std::string, LaunchCount>> counts_;
  std::map<std::byte*, Buffer> taken_;
};

}  // namespace lowkey

#endif  // LOWKEY_BENCH_COUNTING_DEVICE_H_
