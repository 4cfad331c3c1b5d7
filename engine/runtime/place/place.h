#ifndef LOWKEY_ENGINE_RUNTIME_PLACE_PLACE_H_
#define LOWKEY_ENGINE_RUNTIME_PLACE_PLACE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/device/sampling.h"
#include "engine/model/decoder.h"
#include "engine/runtime/row_tokens.h"
#include "engine/sampler/device_sampler.h"

namespace lowkey {

// The answers that a queued step still owes. Must not outlive its place.
struct Drawing {
  std::vector<int64_t> rows;     // the decoder's
  std::vector<size_t> n_tokens;  // of each row, on a device
  QueuedTokens tokens;           // on a device
};

// The place where attention and the model compute, the host or a device: it owns the caches, the
// decoder and, on a device, the sampler. One thread.
class Place {
 public:
  // `device` nullptr: the host.
  static std::unique_ptr<Place> Make(std::shared_ptr<Device> device);
  virtual ~Place() = default;

  // The instruction set of the host's kernels, or the device's name.
  virtual std::string processor() const = 0;
  // Returns an error for good once the device failed.
  virtual absl::Status health() const = 0;
  // Bytes that a cache may take by default once to_load_bytes more are taken by others: a quarter
  // of the host's available memory, or nine tenths of what the device has left.
  virtual int64_t spare_bytes(int64_t to_load_bytes) const = 0;
  // INVALID_ARGUMENT for weights that the place does not multiply with.
  virtual absl::Status CheckWeights(StorageType type) const = 0;

  // Makes caches of `bytes` for sequences of this geometry. Replaces earlier caches, which must be
  // empty. Cache::Create's errors.
  virtual absl::Status MakeCaches(const AttentionGeometry& geometry, int64_t bytes,
                                  int64_t max_rows) = 0;
  // The cache that mechanisms take pages from, and the place that they are made for.
  Cache& cache() { return *caches_[0]; }
  const Cache& cache() const { return *caches_[0]; }
  virtual const DevicePlace* device_place() const { return nullptr; }
  int64_t used_cache_bytes() const;
  size_t n_caches() const { return caches_.size(); }
  const Cache& cache(size_t index) const { return *caches_[index]; }
  // Returns the index of the cache that holds all pages and slabs of such sequences.
  virtual size_t CacheOf(const AttentionMechanism&, const AttentionOptions&) const { return 0; }
  // Calls Cache::SetReclaimer of all caches: `reclaim` is told which cache is short of memory.
  void SetReclaimer(const std::function<bool(size_t cache)>& reclaim);

  // Memory of this place that holds `values`. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Buffer> Hold(absl::Span<const float> values) const = 0;
  // Waits until everything that was queued is computed.
  virtual absl::Status Wait() const { return absl::OkStatus(); }
  virtual absl::Status Fetch(const Buffer& from, absl::Span<float> to) const = 0;

  // Loads the decoder. CheckWeights' errors, RESOURCE_EXHAUSTED.
  virtual absl::Status Load(std::shared_ptr<const Checkpoint> checkpoint,
                            const DecoderOptions& options, ThreadPool& pool) = 0;
  virtual Decoder& decoder() const = 0;

  // Returns whether a step with such a sequence may be queued before the tokens of the step before
  // it are read.
  virtual bool RunsAhead(const AttentionMechanism& mechanism,
                         const AttentionOptions& options) const = 0;
  // Returns whether the tokens of a step are drawn in order once the step is computed, so that a
  // token can decide whether the row after it counts.
  virtual bool VerifiesDrafts() const = 0;
  // Called before Forward: these rows take their tokens from the last QueueDraw.
  virtual void TakeDrawn(absl::Span<const DrawnToken> drawn) = 0;
  // Queues the draws of drawing.rows, at most once a step; `ask(i)` says what is wanted of row i.
  // RESOURCE_EXHAUSTED when the device has no memory to draw with.
  virtual absl::Status QueueDraw(Drawing& drawing, absl::FunctionRef<RowRequest(size_t)> ask) = 0;
  // Computes the answers (the host) or waits for them (a device), and hands those of row i to
  // `consume(i, ..)`, in order.
  virtual absl::Status Collect(Drawing drawing,
                               absl::FunctionRef<void(size_t, RowTokens&)> consume) = 0;

 protected:
  std::vector<std::unique_ptr<Cache>> caches_;  // the place's own first
};

// Hands the logits of `rows` of the last Forward to `consume(index into rows, logits)`, in order.
absl::Status EachLogits(Decoder& decoder, absl::Span<const int64_t> rows,
                        absl::FunctionRef<void(size_t, absl::Span<const float>)> consume);

std::unique_ptr<Place> MakeHostPlace();
std::unique_ptr<Place> MakeDevicePlace(std::shared_ptr<Device> device);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PLACE_PLACE_H_
