#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/machine.h"
#include "engine/base/status_macros.h"
#include "engine/model/transformer.h"
#include "engine/runtime/place/place.h"

namespace lowkey {
namespace {

// Answers from logits on the host.
class LogitsTokens : public RowTokens {
 public:
  explicit LogitsTokens(absl::Span<const float> logits) : logits_(logits) {}
  absl::StatusOr<SampledToken> Sample(Sampler& sampler) override { return sampler.Sample(logits_); }
  SampledToken Score(const RowRequest::Given& given) override {
    SampledToken scored{given.token, LogSoftmaxAt(logits_, given.token), {}};
    if (given.n_top > 0) scored.top_logprobs = TopLogprobs(logits_, given.n_top);
    return scored;
  }

 private:
  const absl::Span<const float> logits_;
};

class HostPlace : public Place {
 public:
  std::string processor() const override { return std::string(Kernels().name); }
  absl::Status health() const override { return absl::OkStatus(); }
  int64_t spare_bytes(int64_t to_load_bytes) const override {
    return std::max<int64_t>(0, AvailableMemoryBytes() - to_load_bytes) / 4;
  }
  absl::Status CheckWeights(StorageType type) const override {
    if (type != StorageType::kFloat8) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "dtype: float8 on the CPU, expected float32, bfloat16 or int8 (float8 needs a device)");
  }

  absl::Status MakeCaches(const AttentionGeometry& geometry, int64_t bytes, int64_t) override {
    const int64_t page_bytes = PageBytes(geometry);
    caches_.clear();
    caches_.resize(1);
    LK_ASSIGN_OR_RETURN(caches_[0], Cache::Create(bytes, page_bytes));
    return absl::OkStatus();
  }

  absl::StatusOr<Buffer> Hold(absl::Span<const float> values) const override {
    const size_t n_bytes = values.size() * sizeof(float);
    LK_ASSIGN_OR_RETURN(Buffer held, Buffer::Allocate(n_bytes));
    if (n_bytes > 0) std::memcpy(held.data(), values.data(), n_bytes);
    return held;
  }
  absl::Status Fetch(const Buffer& from, absl::Span<float> to) const override {
    if (!to.empty()) std::memcpy(to.data(), from.data(), to.size() * sizeof(float));
    return absl::OkStatus();
  }

  absl::Status Load(std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options,
                    ThreadPool& pool) override {
    LK_RETURN_IF_ERROR(CheckWeights(options.weight_type));
    LK_ASSIGN_OR_RETURN(decoder_, Transformer::Load(std::move(checkpoint), options, pool));
    return absl::OkStatus();
  }
  Decoder& decoder() const override { return *decoder_; }

  bool RunsAhead(const AttentionMechanism&, const AttentionOptions&) const override {
    return false;
  }
  bool VerifiesDrafts() const override { return true; }
  void TakeDrawn(absl::Span<const DrawnToken> drawn) override { LK_CHECK(drawn.empty()); }
  // Logits are computed when they are collected.
  absl::Status QueueDraw(Drawing&, absl::FunctionRef<RowRequest(size_t)>) override {
    return absl::OkStatus();
  }
  absl::Status Collect(Drawing drawing,
                       absl::FunctionRef<void(size_t, RowTokens&)> consume) override {
    return EachLogits(*decoder_, drawing.rows, [&](size_t i, absl::Span<const float> logits) {
      LogitsTokens tokens(logits);
      consume(i, tokens);
    });
  }

 private:
  std::unique_ptr<Transformer> decoder_;
};

}  // namespace

std::unique_ptr<Place> MakeHostPlace() { return std::make_unique<HostPlace>(); }

}  // namespace lowkey
