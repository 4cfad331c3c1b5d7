#include "engine/runtime/row_tokens.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

SampledToken HostRowTokens::Score(const RowRequest::Given& given) {
  SampledToken scored{given.token, LogSoftmaxAt(logits_, given.token), {}};
  if (given.n_top > 0) scored.top_logprobs = TopLogprobs(logits_, given.n_top);
  return scored;
}

absl::StatusOr<SampledToken> DrawnRowTokens::Next() {
  LK_CHECK(!drawn_.empty());
  absl::StatusOr<SampledToken> next = std::move(drawn_[0]);
  drawn_.remove_prefix(1);
  return next;
}

absl::StatusOr<SampledToken> DrawnRowTokens::Sample(Sampler& sampler) {
  absl::StatusOr<SampledToken> token = Next();
  if (token.ok()) sampler.Accept(token->token);
  return token;
}

SampledToken DrawnRowTokens::Score(const RowRequest::Given&) {
  absl::StatusOr<SampledToken> scored = Next();
  LK_CHECK(scored.ok());  // bad logits are none of a given token's errors
  return *std::move(scored);
}

}  // namespace lowkey
