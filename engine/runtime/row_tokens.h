#ifndef LOWKEY_ENGINE_RUNTIME_ROW_TOKENS_H_
#define LOWKEY_ENGINE_RUNTIME_ROW_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/sampler/sampler.h"

namespace lowkey {

// What is wanted of a row of a step: a token for each sampler, or how likely a given token is.
struct RowRequest {
  struct Given {
    int32_t token = 0;
    int32_t n_top = 0;  // 0..20 most likely beside it
  };

  // What one sampler draws next; `uncounted` as DeviceSampler::Add.
  struct Draw {
    const Sampler* sampler = nullptr;
    std::optional<int64_t> uncounted = std::nullopt;
  };

  std::vector<Draw> draws;  // in the order in which their tokens are taken
  std::optional<Given> given;

  size_t n_tokens() const { return draws.size() + (given.has_value() ? 1 : 0); }
};

// That row's answers, wherever its logits are.
class RowTokens {
 public:
  virtual ~RowTokens() = default;
  // The sampler's next token, counted. Sampler::Sample's errors.
  virtual absl::StatusOr<SampledToken> Sample(Sampler& sampler) = 0;
  // The given token with its log-probability, NaN where the logits are bad.
  virtual SampledToken Score(const RowRequest::Given& given) = 0;
};

// Of logits on the host.
class HostRowTokens : public RowTokens {
 public:
  explicit HostRowTokens(absl::Span<const float> logits) : logits_(logits) {}
  absl::StatusOr<SampledToken> Sample(Sampler& sampler) override { return sampler.Sample(logits_); }
  SampledToken Score(const RowRequest::Given& given) override;

 private:
  const absl::Span<const float> logits_;
};

// Of tokens that a device has drawn, in the order of the row's request.
class DrawnRowTokens : public RowTokens {
 public:
  explicit DrawnRowTokens(absl::Span<absl::StatusOr<SampledToken>> drawn) : drawn_(drawn) {}
  absl::StatusOr<SampledToken> Sample(Sampler& sampler) override;
  SampledToken Score(const RowRequest::Given& given) override;

 private:
  absl::StatusOr<SampledToken> Next();

  absl::Span<absl::StatusOr<SampledToken>> drawn_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_ROW_TOKENS_H_
