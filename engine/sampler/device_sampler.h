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
  // Waits for the tokens, and for nothing that was queued later. Returns a result for each Add, in
  // order, with Sampler::Sample's errors for bad logits. For AddGiven bad logits are no error: the
  // logprob is NaN and there are no others. A device's error is the error of all.
  absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> Wait();

 private:
  friend class DeviceSampler;
  // The wishes of one Add.
  struct Asked {
    std::optional<int32_t> n_top;  // set if log-probabilities are reported
    std::optional<int64_t> step;   // the sampler's; unset for a given token
    absl::Status mask = {};        // the error of a mask, which is the answer then
  };

  absl::StatusOr<SampledToken> Read(const SampleResult& result, const Asked& asked) const;

  int32_t vocab_size_ = 0;
  std::vector<Asked> asked_;
  std::unique_ptr<Fetched> results_;  // nullptr if nothing was asked for
};

// Draws a step's tokens on the device that holds the logits: bit for bit the tokens and
// log-probabilities that the samplers would draw. A step is Adds and Queue for each of its parts,
// then Fetch. The next step may be queued before the tokens are waited for. One thread.
class DeviceSampler {
 public:
  // Takes memory for `rows_at_once` rows, some 4 bytes per row and token of the vocabulary; more
  // rows are computed in turns. vocab_size is 2^20 at most. RESOURCE_EXHAUSTED when the memory
  // cannot be had. The device outlives this.
  static absl::StatusOr<std::unique_ptr<DeviceSampler>> Create(Device& device, int32_t vocab_size,
                                                               int64_t rows_at_once);

  // Adds a draw of the sampler's next token from a row of logits; several may draw from one row.
  // Reads the sampler and the mask of its constraint only now; the caller counts the token with
  // Sampler::Accept. `pending` is the number, among the last fetched step's Adds, of the token that
  // the sampler will count first: with a constraint there is none.
  void Add(Sampler& sampler, int64_t logits_row, std::optional<int64_t> pending = std::nullopt);
  // Adds the log-probabilities of a known token and of the n_top most likely.
  void AddGiven(int32_t token, int32_t n_top, int64_t logits_row);

  // Queues the Adds and forgets them. logits are the device's, row i at logits + i * ld_logits.
  // RESOURCE_EXHAUSTED when there is no memory for all the adjustments; nothing is queued then.
  absl::Status Queue(const float* logits, int64_t ld_logits);
  // Ends the step.
  QueuedTokens Fetch();
  // The results of the last fetched step, one for each of its Adds, on the device, for work that is
  // queued before the next Fetch.
  const SampleResult* drawn() const { return results_[1 - current_].as<SampleResult>(); }

 private:
  DeviceSampler(Device& device, int32_t vocab_size, int64_t rows_at_once)
      : device_(device), vocab_size_(vocab_size), rows_at_once_(rows_at_once) {}
  struct Uploaded {
    const uint64_t* mask_words = nullptr;
    LogitAdjustment* adjustments = nullptr;
    const DrawnCount* counts = nullptr;
    const float* next_penalties = nullptr;
  };

  absl::Status Reserve(Buffer& buffer, size_t size_bytes);
  absl::Status ReserveResults(size_t n_more);
  absl::Status AddMask(Sampler& sampler, SampleRow& row);
  void AddAdjustments(const Sampler& sampler, std::optional<int64_t> pending, SampleRow& row);
  absl::StatusOr<Uploaded> Upload();
  void Forget();

  Device& device_;
  const int32_t vocab_size_;
  const int64_t rows_at_once_;
  std::vector<SampleRow> rows_;
  std::vector<uint64_t> mask_words_;
  std::vector<LogitAdjustment> adjustments_;
  std::vector<DrawnCount> counts_;
  std::vector<float> next_penalties_;                // by adjustment, as far as counts_ need them
  std::vector<QueuedTokens::Asked> asked_, queued_;  // by row; by this step's results
  std::vector<std::byte> upload_;
  Buffer parameters_, scratch_;  // on the device
  Buffer results_[2];            // on the device: this step's and the last one's
  int current_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_DEVICE_SAMPLER_H_
