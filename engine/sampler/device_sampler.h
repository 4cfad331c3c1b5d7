#ifndef LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_
#define LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/device/sampling.h"
#include "engine/sampler/sampler.h"

namespace lowkey {

// A step's tokens on their way to the host. Must not outlive the device.
class QueuedTokens {
 public:
  // Waits for them, and for nothing that was queued later: a result for each Add, in order, with
  // Sampler::Sample's errors for bad logits. For AddGiven bad logits are no error: its logprob is
  // NaN, and there are no others. An error of the device is the error of all.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Wait();

 private:
  friend class DeviceSampler;
  // What a result is to become.
  struct Asked {
    std::optional<int32_t> n_top;  // where log-probabilities are reported
    std::optional<int64_t> step;   // of a sampler
  };

  absl::StatusOr<SampledToken> Read(const SampleResult& result, const Asked& asked) const;

  int32_t vocab_size_ = 0;
  std::vector<Asked> asked_;
  std::unique_ptr<Fetched> results_;  // nullptr where nothing was asked for
};

// Draws a step's tokens where the logits are: the tokens and log-probabilities that the samplers
// themselves would draw, bit for bit. A step is: Adds and Queue, as often as there are parts of it,
// then Fetch. The next step may be queued before its tokens are waited for. One thread.
class DeviceSampler {
 public:
  // At most `rows_at_once` rows are computed at once, more of them in turns: memory for these many
  // is taken here (4 bytes for each token of the vocabulary, and some). vocab_size is 2^20 at most.
  // RESOURCE_EXHAUSTED when it cannot be had. The device outlives this.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(Device& device, int32_t vocab_size,
                                                               int64_t rows_at_once);

  // The sampler's next token, of a row of logits; others may draw from the same row. Reads the
  // sampler only now; whoever takes the token counts it: Sampler::Accept. `pending`: its token of
  // the last step that was fetched, by the number of its Add there, which it will count before.
  void Add(const Sampler& sampler, int64_t logits_row,
           std::optional<int64_t> pending = std::nullopt);
  // The log-probabilities of a token that is there already, and of the n_top most likely.
  void AddGiven(int32_t token, int32_t n_top, int64_t logits_row);

  // Queues what was added, and forgets it. logits are the device's, row i at logits + i *
  // ld_logits. RESOURCE_EXHAUSTED when there is no memory for all the adjustments; nothing is
  // queued then.
  absl::Status Queue(const float* logits, int64_t ld_logits);
  // Ends the step.
  QueuedTokens Fetch();
  // Results of the last step that was fetched, one for each of its Adds, on the device: for work
  // that is queued before the next step's Fetch.
  const SampleResult* drawn() const { return results_[1 - current_].as<SampleResult>(); }

 private:
  DeviceSampler(Device& device, int32_t vocab_size, int64_t rows_at_once)
      : device_(device), vocab_size_(vocab_size), rows_at_once_(rows_at_once) {}
  struct Uploaded {
    LogitAdjustment* adjustments = nullptr;
    const DrawnCount* counts = nullptr;
    const float* next_penalties = nullptr;
  };

  absl::Status Reserve(Buffer& buffer, size_t size_bytes);
  absl::Status ReserveResults(size_t n_more);
  void AddAdjustments(const Sampler& sampler, std::optional<int64_t> pending, SampleRow& row);
  absl::StatusOr<Uploaded> Upload();
  void Forget();
  void QueueRows(const SamplingArgs& all, int64_t first);

  Device& device_;
  const int32_t vocab_size_;
  const int64_t rows_at_once_;
  std::vector<SampleRow> rows_;
  std::vector<LogitAdjustment> adjustments_;
  std::vector<DrawnCount> counts_;
  std::vector<float> next_penalties_;                // of adjustments_, as far as counts_ need them
  std::vector<QueuedTokens::Asked> asked_, queued_;  // of rows_; of this step's results
  std::vector<std::byte> upload_;
  Buffer parameters_, scratch_;  // the device's, and so the results: this step's and the last one's
  Buffer results_[2];
  int current_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_
