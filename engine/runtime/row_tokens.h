#ifndef LOWKEY_ENGINE_RUNTIME_ROW_TOKENS_H_
#define LOWKEY_ENGINE_RUNTIME_ROW_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/sampler/sampler.h"

namespace lowkey {

// The wishes for a row of a step: a token for each sampler, or how likely a given token is.
struct RowRequest {
  struct Given {
    int32_t token = 0;
    int32_t n_top = 0;  // most likely tokens reported beside it, 0..20
  };

  // One sampler's next token; DeviceSampler::Add explains `pending`.
  struct Draw {
    Sampler* sampler = nullptr;
    std::optional<int64_t> pending = std::nullopt;
  };

  std::vector<Draw> draws;  // in the order in which their tokens are taken
  std::optional<Given> given;

  size_t n_tokens() const { return draws.size() + (given.has_value() ? 1 : 0); }
};

// The answers to a row's request, from logits on the host or from tokens that a device drew.
class RowTokens {
 public:
  virtual ~RowTokens() = default;
  // Returns the sampler's next token and counts it. Sampler::Sample's errors.
  virtual absl::StatusOr<SampledToken> Sample(Sampler& sampler) = 0;
  // Returns the given token with its log-probability, which is NaN where the logits are bad.
  virtual SampledToken Score(const RowRequest::Given& given) = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_ROW_TOKENS_H_
