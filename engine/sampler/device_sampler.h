#ifndef LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_
#define LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device.h"
#include "engine/kernels/device_sampling.h"
#include "engine/sampler/sampler.h"

namespace lowkey {

// Draws a step's tokens where the logits are: the tokens and log-probabilities that the samplers
// themselves would draw, bit for bit. A step is: the Adds, Queue, Collect. One thread.
class DeviceSampler {
 public:
  // At most `rows_at_once` rows are computed at once, more of them in turns: memory for these many
  // is taken here (4 bytes for each token of the vocabulary, and some). vocab_size is 2^20 at most.
  // RESOURCE_EXHAUSTED when it cannot be had. The device outlives this.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(Device& device, int32_t vocab_size,
                                                               int64_t rows_at_once);

  // The sampler's next token, of a row of logits; others may draw from the same row. Reads the
  // sampler only now; whoever takes the token counts it: Sampler::Accept.
  void Add(const Sampler& sampler, int64_t logits_row);
  // The log-probabilities of a token that is there already, and of the n_top most likely.
  void AddGiven(int32_t token, int32_t n_top, int64_t logits_row);

  // Queues what was added, and forgets it. logits are the device's, row i at logits + i *
  // ld_logits. RESOURCE_EXHAUSTED when there is no memory for all the adjustments; nothing is
  // queued then.
  absl::Status Queue(const float* logits, int64_t ld_logits);
  // Waits, and returns a result for each Add, in order: Sampler::Sample's errors for bad logits.
  // For AddGiven bad logits are no error: its logprob is NaN, and there are no others. An error of
  // the device is the error of all.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Collect();

 private:
  // What a result is to become.
  struct Asked {
    std::optional<int32_t> n_top;  // where log-probabilities are reported
    std::optional<int64_t> step;   // of a sampler
  };

  DeviceSampler(Device& device, int32_t vocab_size, int64_t rows_at_once)
      : device_(device), vocab_size_(vocab_size), rows_at_once_(rows_at_once) {}
  absl::Status Reserve(Buffer& buffer, size_t size_bytes);
  void QueueRows(const SamplingArgs& all, int64_t first);
  absl::StatusOr<SampledToken> Read(const SampleResult& result, const Asked& asked) const;

  Device& device_;
  const int32_t vocab_size_;
  const int64_t rows_at_once_;
  std::vector<SampleRow> rows_;
  std::vector<LogitAdjustment> adjustments_;
  std::vector<Asked> asked_, queued_;
  std::vector<std::byte> upload_;
  std::vector<SampleResult> results_;
  Buffer parameters_, device_results_, scratch_;  // the device's
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_
