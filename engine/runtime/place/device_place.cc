#include <algorithm>
#include <utility>

#include "engine/base/machine.h"
#include "engine/base/status_macros.h"
#include "engine/model/device/device_transformer.h"
#include "engine/runtime/place/place.h"

namespace lowkey {
namespace {

// Answers that a device has drawn, in the order of the row's request.
class DrawnTokens : public RowTokens {
 public:
  explicit DrawnTokens(absl::Span<absl::StatusOr<SampledToken>> drawn) : drawn_(drawn) {}
  absl::StatusOr<SampledToken> Sample(Sampler& sampler) override {
    absl::StatusOr<SampledToken> token = Next();
    if (token.ok()) LK_RETURN_IF_ERROR(sampler.Accept(token->token));
    return token;
  }
  SampledToken Score(const RowRequest::Given&) override {
    absl::StatusOr<SampledToken> scored = Next();
    LK_CHECK(scored.ok());  // bad logits are no error of a given token
    return *std::move(scored);
  }

 private:
  absl::StatusOr<SampledToken> Next() {
    LK_CHECK(!drawn_.empty());
    absl::StatusOr<SampledToken> next = std::move(drawn_[0]);
    drawn_.remove_prefix(1);
    return next;
  }

  absl::Span<absl::StatusOr<SampledToken>> drawn_;
};

class PlaceOnDevice : public Place {
 public:
  explicit PlaceOnDevice(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  // Caches and weights lie in the device's memory.
  ~PlaceOnDevice() override { caches_.clear(); }

  std::string processor() const override { return device_->name(); }
  absl::Status health() const override { return device_->status(); }
  int64_t spare_bytes(int64_t to_load_bytes) const override {
    return std::max<int64_t>(0, device_->free_bytes() - to_load_bytes) / 10 * 9;
  }
  absl::Status CheckWeights(StorageType) const override { return absl::OkStatus(); }

  // The second cache holds sequences of mechanisms that the device leaves to the host. It is as
  // large as the device's, or half of the host's available memory if that is less.
  absl::Status MakeCaches(const AttentionGeometry& geometry, int64_t bytes,
                          int64_t max_rows) override {
    const int64_t page_bytes = PageBytes(geometry);
    caches_.clear();
    caches_.resize(2);
    LK_RETURN_IF_ERROR(device_->PrepareAttention(geometry.head_dim));
    LK_ASSIGN_OR_RETURN(caches_[0], Cache::Create(bytes, page_bytes, device_.get()));
    const int64_t host_bytes = std::max(page_bytes, std::min(bytes, AvailableMemoryBytes() / 2));
    LK_ASSIGN_OR_RETURN(caches_[1], Cache::CreateUnreserved(host_bytes, page_bytes));
    device_place_ = {device_.get(), caches_[1].get(), max_rows};
    return absl::OkStatus();
  }
  const DevicePlace* device_place() const override { return &device_place_; }
  size_t CacheOf(const AttentionMechanism& mechanism,
                 const AttentionOptions& options) const override {
    return mechanism.OnlyQueues(options) ? 0 : 1;
  }

  absl::StatusOr<Buffer> Hold(absl::Span<const float> values) const override {
    const size_t n_bytes = values.size() * sizeof(float);
    LK_ASSIGN_OR_RETURN(Buffer held, Buffer::Allocate(n_bytes, device_.get()));
    if (n_bytes > 0) device_->Upload(values.data(), held.data(), static_cast<int64_t>(n_bytes));
    return held;
  }
  absl::Status Wait() const override { return device_->Wait(); }
  absl::Status Fetch(const Buffer& from, absl::Span<float> to) const override {
    return device_->Download(from.data(), to.data(),
                             static_cast<int64_t>(to.size() * sizeof(float)));
  }

  absl::Status Load(std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options,
                    ThreadPool& pool) override {
    const int32_t vocab_size = checkpoint->config.vocab_size;
    LK_ASSIGN_OR_RETURN(decoder_,
                        DeviceTransformer::Load(std::move(checkpoint), options, pool, *device_));
    LK_ASSIGN_OR_RETURN(sampler_,
                        DeviceSampler::Create(*device_, vocab_size, decoder_->max_logit_rows()));
    return absl::OkStatus();
  }
  Decoder& decoder() const override { return *decoder_; }

  bool RunsAhead(const AttentionMechanism& mechanism,
                 const AttentionOptions& options) const override {
    return mechanism.OnlyQueues(options);
  }
  bool VerifiesDrafts() const override { return false; }
  void TakeDrawn(absl::Span<const DrawnToken> drawn) override {
    decoder_->TakeDrawn(sampler_->drawn(), drawn);
  }
  absl::Status QueueDraw(Drawing& drawing, absl::FunctionRef<RowRequest(size_t)> ask) override {
    const absl::Status queued = QueueParts(drawing, ask);
    drawing.tokens = sampler_->Fetch();  // the next step begins anew, whatever was queued
    return queued;
  }
  absl::Status Collect(Drawing drawing,
                       absl::FunctionRef<void(size_t, RowTokens&)> consume) override {
    LK_ASSIGN_OR_RETURN(auto drawn, drawing.tokens.Wait());
    auto rest = absl::MakeSpan(drawn);
    for (size_t i = 0; i < drawing.rows.size(); ++i) {
      DrawnTokens tokens(rest.first(drawing.n_tokens[i]));
      rest.remove_prefix(drawing.n_tokens[i]);
      consume(i, tokens);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status QueueParts(Drawing& drawing, absl::FunctionRef<RowRequest(size_t)> ask) {
    const auto rows = absl::MakeConstSpan(drawing.rows);
    const auto max_rows = static_cast<size_t>(decoder_->max_logit_rows());
    for (size_t first = 0; first < rows.size(); first += max_rows) {
      const auto part = rows.subspan(first, max_rows);
      for (size_t i = 0; i < part.size(); ++i) {
        const RowRequest request = ask(first + i);
        Add(request, static_cast<int64_t>(i));
        drawing.n_tokens.push_back(request.n_tokens());
      }
      LK_RETURN_IF_ERROR(
          sampler_->Queue(decoder_->QueueLogits(part), decoder_->config().vocab_size));
    }
    return absl::OkStatus();
  }

  void Add(const RowRequest& request, int64_t logits_row) {
    for (const RowRequest::Draw& draw : request.draws) {
      sampler_->Add(*draw.sampler, logits_row, draw.pending);
    }
    if (request.given.has_value()) {
      sampler_->AddGiven(request.given->token, request.given->n_top, logits_row);
    }
  }

  const std::shared_ptr<Device> device_;
  DevicePlace device_place_;
  std::unique_ptr<DeviceTransformer> decoder_;
  std::unique_ptr<DeviceSampler> sampler_;
};

}  // namespace

std::unique_ptr<Place> MakeDevicePlace(std::shared_ptr<Device> device) {
  return std::make_unique<PlaceOnDevice>(std::move(device));
}

}  // namespace lowkey
