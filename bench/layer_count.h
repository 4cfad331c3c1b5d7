#ifndef LOWKEY_BENCH_LAYER_COUNT_H_
#define LOWKEY_BENCH_LAYER_COUNT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/counting_device.h"
#include "engine/config/model_config.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

// Counts what one layer of a model's step launches on a device, and the bytes that this moves, with
// standard attention and a cache in the rows' type. No device is needed.
class LayerCounter {
 public:
  // CountingDevice::counts of the layers alone.
  using Counts = std::vector<std::pair<std::string, LaunchCount>>;
  static constexpr int64_t kMaxRows = 2048;  // of a step

  // Makes a random layer of that shape, by way of a file that it removes.
  static absl::StatusOr<std::unique_ptr<LayerCounter>> Create(const ModelConfig& config,
                                                              EngineOptions::Dtype dtype);

  // Counts a step in which `batch` sequences of `depth` tokens get one more each.
  absl::StatusOr<Counts> Decode(int64_t batch, int64_t depth);
  // Counts all steps of a prompt.
  absl::StatusOr<Counts> Prompt(int64_t n_tokens);
  static LaunchCount Sum(const Counts& counts);

 private:
  absl::Status Prefill(SequenceCache& sequence, int64_t n_tokens);
  Counts OfLayers() const;

  std::shared_ptr<CountingDevice> device_ = std::make_shared<CountingDevice>();
  std::unique_ptr<ModelRunner> runner_;
};

}  // namespace lowkey

#endif  // LOWKEY_BENCH_LAYER_COUNT_H_
