#include "engine/attention/lasso/policy.h"

#include <utility>

#include "engine/attention/pages/column_pages.h"

namespace lowkey {

LassoPolicy::LassoPolicy(const AttentionContext& context)
    : context_(context),
      geometry_(context.geometry),
      options_(context.weights->lasso),
      tile_bytes_(ColumnTileBytes(geometry_)) {}

int64_t LassoPolicy::GramBytes() const {
  return geometry_.n_layers * geometry_.n_heads * geometry_.head_dim * geometry_.head_dim *
         static_cast<int64_t>(sizeof(double));
}

int64_t LassoPolicy::BoundBytes(const AttentionOptions&, const SequenceBound& bound) const {
  return PagesFor(bound.n_tokens) * PageBytes() + GramBytes();
}

AttentionWork LassoPolicy::Work(const AttentionOptions&, int64_t n_tokens) const {
  const auto d = static_cast<double>(geometry_.head_dim);
  const auto n = static_cast<double>(n_tokens + options_.extra_tokens);
  const auto heads = static_cast<double>(geometry_.n_layers * geometry_.n_heads);
  const double eigen = 9 * d * d * d;  // tridiagonalization, QL and their rotations
  AttentionWork work;
  work.decode = heads * (2 * (options_.iterations + 1) * n * d + eigen);
  work.prefill = n / 2 * (work.decode + heads * eigen);
  return work;
}

std::optional<SequenceCache> LassoPolicy::Prefix(const SequenceCache& sequence, int64_t n_computed,
                                                 int64_t n_tokens) const {
  if (n_computed != n_tokens) return std::nullopt;
  const auto& state = sequence.state.As<LassoState>();
  auto pages = FirstPages(state.input_pages, 0, n_tokens / kPageTokens);
  if (!pages.has_value()) return std::nullopt;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  prefix.state.As<LassoState>() = {*std::move(pages), state.gram};
  return prefix;
}

}  // namespace lowkey
