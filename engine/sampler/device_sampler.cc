#include "engine/sampler/device_sampler.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"
#include "engine/sampler/logits.h"

namespace lowkey {
namespace {

SampleRow RowOf(const Sampler& sampler, int64_t logits_row, int64_t step) {
  const SamplingOptions& options = sampler.options();
  SampleRow row;
  row.logits_row = logits_row;
  row.uniform = sampler.uniform(step);
  row.kind = options.temperature == 0.0f ? SampleKind::kMostLikely : SampleKind::kDraw;
  row.temperature = options.temperature;
  row.top_k = options.top_k;
  row.top_p = options.top_p;
  row.min_p = options.min_p;
  row.repetition_penalty = options.repetition_penalty;
  row.report = options.logprobs.has_value() ? SampleReport::kLogprobs : SampleReport::kToken;
  row.n_top = options.logprobs.value_or(0);
  return row;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceSampler>> DeviceSampler::Create(Device& device,
                                                                     int32_t vocab_size,
                                                                     int64_t rows_at_once) {
  LK_CHECK(rows_at_once > 0 && rows_at_once <= 65535);
  std::unique_ptr<DeviceSampler> sampler(new DeviceSampler(device, vocab_size, rows_at_once));
  LK_RETURN_IF_ERROR(sampler->Reserve(
      sampler->scratch_, static_cast<size_t>(SamplingScratchBytes(rows_at_once, vocab_size))));
  LK_RETURN_IF_ERROR(sampler->Reserve(sampler->parameters_,
                                      static_cast<size_t>(rows_at_once) * sizeof(SampleRow)));
  for (Buffer& results : sampler->results_) {
    LK_RETURN_IF_ERROR(
        sampler->Reserve(results, static_cast<size_t>(rows_at_once) * sizeof(SampleResult)));
  }
  return sampler;
}

// Makes the buffer hold that many bytes; a buffer that has to grow at least doubles.
absl::Status DeviceSampler::Reserve(Buffer& buffer, size_t size_bytes) {
  if (buffer.size_bytes() >= size_bytes) return absl::OkStatus();
  const size_t grown = std::max(size_bytes, buffer.size_bytes() * 2);
  LK_ASSIGN_OR_RETURN(buffer, Buffer::Allocate(grown, &device_));
  return absl::OkStatus();
}

// Makes room for more results and keeps this step's.
absl::Status DeviceSampler::ReserveResults(size_t n_more) {
  Buffer& results = results_[current_];
  const size_t held_bytes = queued_.size() * sizeof(SampleResult);
  const size_t size_bytes = held_bytes + n_more * sizeof(SampleResult);
  if (results.size_bytes() >= size_bytes) return absl::OkStatus();
  Buffer grown;
  LK_RETURN_IF_ERROR(Reserve(grown, std::max(size_bytes, 2 * results.size_bytes())));
  device_.Copy(results.data(), grown.data(), static_cast<int64_t>(held_bytes));
  results = std::move(grown);
  return absl::OkStatus();
}

void DeviceSampler::Add(Sampler& sampler, int64_t logits_row, std::optional<int64_t> pending) {
  LK_CHECK(sampler.vocab_size() == vocab_size_);
  LK_CHECK(sampler.constraint() == nullptr || !pending.has_value());
  const int64_t step = sampler.n_sampled() + (pending.has_value() ? 1 : 0);
  SampleRow row = RowOf(sampler, logits_row, step);
  const absl::Status mask = AddMask(sampler, row);
  AddAdjustments(sampler, pending, row);
  rows_.push_back(row);
  asked_.push_back({.n_top = sampler.options().logprobs, .step = step, .mask = mask});
}

absl::Status DeviceSampler::AddMask(Sampler& sampler, SampleRow& row) {
  if (sampler.constraint() == nullptr) return absl::OkStatus();
  absl::Status status;
  const bool has_memory = RunContained([&] {
    const auto words = sampler.constraint()->Mask();
    status = words.status();
    if (!words.ok()) return;
    LK_CHECK(static_cast<int64_t>(words->size()) == (vocab_size_ + 63) / 64);
    const size_t first = mask_words_.size();
    mask_words_.insert(mask_words_.end(), words->begin(), words->end());
    row.first_mask_word = static_cast<int64_t>(first);
  });
  return has_memory ? status : OutOfMemory();
}

void DeviceSampler::AddAdjustments(const Sampler& sampler, std::optional<int64_t> pending,
                                   SampleRow& row) {
  const absl::Span<const LogitAdjustment> adjustments = sampler.adjustments();
  row.first_adjustment = static_cast<int64_t>(adjustments_.size());
  row.n_adjustments = static_cast<int32_t>(adjustments.size());
  adjustments_.insert(adjustments_.end(), adjustments.begin(), adjustments.end());
  if (!pending.has_value() || !Penalizes(sampler.options())) return;
  next_penalties_.resize(row.first_adjustment);
  for (size_t i = 0; i < adjustments.size(); ++i) {
    next_penalties_.push_back(sampler.next_penalty(i));
  }
  adjustments_.emplace_back();
  ++row.n_adjustments;
  counts_.push_back({row.first_adjustment, row.n_adjustments, static_cast<int32_t>(*pending),
                     sampler.options().repetition_penalty != 1.0f ? 1 : 0,
                     sampler.first_penalty()});
}

void DeviceSampler::AddGiven(int32_t token, int32_t n_top, int64_t logits_row) {
  LK_CHECK(token >= 0 && token < vocab_size_ && n_top >= 0 && n_top <= kMaxTopLogits);
  SampleRow row;
  row.logits_row = logits_row;
  row.kind = SampleKind::kGiven;
  row.token = token;
  row.report = SampleReport::kLogprobs;
  row.n_top = n_top;
  rows_.push_back(row);
  asked_.push_back({.n_top = n_top, .step = std::nullopt});
}

// Copies all that was added to the device, in one piece.
absl::StatusOr<DeviceSampler::Uploaded> DeviceSampler::Upload() {
  upload_.clear();
  const auto add = [this](const auto& items) {
    const size_t at = upload_.size(), n_bytes = items.size() * sizeof(items[0]);
    upload_.resize(at + n_bytes);
    if (n_bytes > 0) std::memcpy(upload_.data() + at, items.data(), n_bytes);
    return at;
  };
  add(rows_);
  const size_t masks_at = add(mask_words_);
  const size_t adjustments_at = add(adjustments_), counts_at = add(counts_);
  const size_t penalties_at = add(next_penalties_);
  LK_RETURN_IF_ERROR(Reserve(parameters_, upload_.size()));
  std::byte* const there = parameters_.data();
  device_.Upload(upload_.data(), there, static_cast<int64_t>(upload_.size()));
  return Uploaded{reinterpret_cast<const uint64_t*>(there + masks_at),
                  reinterpret_cast<LogitAdjustment*>(there + adjustments_at),
                  reinterpret_cast<const DrawnCount*>(there + counts_at),
                  reinterpret_cast<const float*>(there + penalties_at)};
}

void DeviceSampler::Forget() {
  rows_.clear();
  mask_words_.clear();
  adjustments_.clear();
  counts_.clear();
  next_penalties_.clear();
  asked_.clear();
}

absl::Status DeviceSampler::Queue(const float* logits, int64_t ld_logits) {
  const absl::Cleanup forget = [this] { Forget(); };
  if (rows_.empty()) return absl::OkStatus();
  LK_RETURN_IF_ERROR(ReserveResults(rows_.size()));
  LK_ASSIGN_OR_RETURN(const Uploaded there, Upload());
  if (!counts_.empty()) {
    device_.kernels().count_drawn(
        device_, {drawn(), there.counts, static_cast<int64_t>(counts_.size()), there.adjustments,
                  there.next_penalties});
  }
  SamplingArgs args;
  args.logits = logits;
  args.ld_logits = ld_logits;
  args.vocab = vocab_size_;
  args.mask_words = there.mask_words;
  args.adjustments = there.adjustments;
  args.scratch = scratch_.data();
  const auto n_rows = static_cast<int64_t>(rows_.size());
  for (int64_t first = 0; first < n_rows; first += rows_at_once_) {
    args.n_rows = std::min(rows_at_once_, n_rows - first);
    args.n_draws = args.n_reports = args.n_masked = args.most_adjustments = 0;
    for (int64_t i = first; i < first + args.n_rows; ++i) {
      args.n_draws += rows_[i].kind == SampleKind::kDraw ? 1 : 0;
      args.n_reports += rows_[i].report == SampleReport::kLogprobs ? 1 : 0;
      args.n_masked += rows_[i].first_mask_word >= 0 ? 1 : 0;
      args.most_adjustments = std::max<int64_t>(args.most_adjustments, rows_[i].n_adjustments);
    }
    args.rows = parameters_.as<SampleRow>() + first;
    args.results = results_[current_].as<SampleResult>() + queued_.size() + first;
    device_.kernels().sample(device_, args);
  }
  queued_.insert(queued_.end(), asked_.begin(), asked_.end());
  return absl::OkStatus();
}

QueuedTokens DeviceSampler::Fetch() {
  QueuedTokens tokens;
  tokens.vocab_size_ = vocab_size_;
  tokens.asked_ = std::exchange(queued_, {});
  if (!tokens.asked_.empty()) {
    tokens.results_ =
        device_.Fetch(results_[current_].data(),
                      static_cast<int64_t>(tokens.asked_.size() * sizeof(SampleResult)));
  }
  current_ = 1 - current_;
  return tokens;
}

absl::StatusOr<std::vector<absl::StatusOr<SampledToken>>> QueuedTokens::Wait() {
  std::vector<absl::StatusOr<SampledToken>> tokens;
  if (asked_.empty()) return tokens;
  LK_ASSIGN_OR_RETURN(const std::byte* bytes, results_->Wait());
  const auto* results = reinterpret_cast<const SampleResult*>(bytes);
  for (size_t i = 0; i < asked_.size(); ++i) tokens.push_back(Read(results[i], asked_[i]));
  return tokens;
}

absl::StatusOr<SampledToken> QueuedTokens::Read(const SampleResult& result,
                                                const Asked& asked) const {
  LK_RETURN_IF_ERROR(asked.mask);
  SampledToken sampled;
  sampled.token = result.token;
  if (result.outcome != SampleOutcome::kDrawn) {
    if (asked.step.has_value()) {
      return result.outcome == SampleOutcome::kBadLogits ? BadLogitsError(*asked.step)
                                                         : NothingLeftError(*asked.step);
    }
    sampled.logprob = std::numeric_limits<float>::quiet_NaN();
    return sampled;
  }
  if (!asked.n_top.has_value()) return sampled;
  const double log_sum = LogOfSum(result.max, result.exp_sum);
  sampled.logprob = LogprobOf(result.token, result.logit, log_sum).logprob;
  const int32_t n_top = std::min(*asked.n_top, vocab_size_);
  for (int32_t i = 0; i < n_top; ++i) {
    sampled.top_logprobs.push_back(LogprobOf(result.top[i].token, result.top[i].logit, log_sum));
  }
  return sampled;
}

}  // namespace lowkey
