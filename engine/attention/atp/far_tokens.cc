#include "engine/attention/atp/far_tokens.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/atp/kept_tokens.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/round_up.h"

namespace lowkey {
namespace {

constexpr int64_t kSoftmaxStep = 16;

}  // namespace

float SumInChains(const float* x, int64_t n) {
  float lanes[kSoftmaxStep] = {};
  for (int64_t i = 0; i < n; i += kSoftmaxStep) {
    for (int64_t j = 0; j < kSoftmaxStep; ++j) lanes[j] += x[i + j];
  }
  for (int64_t half = kSoftmaxStep / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

void FarTokens::Reserve(const AttentionGeometry& g, const PrincipalShape& shape, const Size& size) {
  Grow(scores_, size.n_rows * size.n_far_tokens);
  Grow(far_maxima_, size.n_rows);
  Grow(factors_, size.n_rows);
  Grow(shares_, size.n_rows);
  if (size.n_refined == 0) return;
  chosen_.reserve(size.n_rows / g.group() * size.n_refined);
  first_choice_.reserve(size.n_rows / g.group() + 1);
  const int64_t n_chosen = RoundUp(size.n_refined, kSoftmaxStep);
  const int64_t number_bytes = StorageBytes(KeptReadType(shape));
  Grow(weights_, size.n_far_tokens);
  if (shape.keeps_rest) return;
  Grow(chosen_scores_, g.group() * n_chosen);
  Grow(chosen_keys_, n_chosen * DotWidth(g) * number_bytes);
  Grow(chosen_values_, n_chosen * g.head_dim_padded() * number_bytes);
}

void FarTokens::Join(int64_t n_far, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    SoftmaxState far{kHiddenScore, 0};
    kernels.softmax_update(scores_.data() + r * n_far, n_far, &far);
    SoftmaxState& near = rows.state(r);
    const float top = std::max(near.max, far.max);
    const float near_factor = std::exp(near.max - top);
    kernels.scale(near_factor, rows.out(r), rows.out_stride());
    near = {top, near.sum * near_factor};
    far_maxima_[r] = far.max;
    factors_[r] = std::exp(far.max - top);
    shares_[r] = factors_[r] / (near.sum + far.sum * factors_[r]);
  }
}

FarTokens::Choices FarTokens::ChoicesIn(int64_t token, int64_t begin, int64_t end) const {
  const auto first = chosen_.begin() + first_choice_[token];
  const auto last = chosen_.begin() + first_choice_[token + 1];
  const auto from = std::lower_bound(first, last, begin);
  return {from - chosen_.begin(), std::lower_bound(from, last, end) - chosen_.begin()};
}

void FarTokens::ChooseFor(int64_t n_far, int64_t n_sinks, int64_t first_row, int64_t group,
                          const Wanted& wanted, bool takes) {
  // A single query head's weights are used as they are: its shares would keep their order.
  const float* weights = scores_.data() + first_row * n_far;
  float least = wanted.least_share;
  if (group == 1 && least > 0) least /= shares_[first_row];
  if (group > 1) {
    Kernels().Gemm(StorageType::kFloat32,
                   {shares_.data() + first_row, group, weights, n_far, Kernels().panel_columns,
                    weights_.data(), n_far, 1, n_far, group});
    weights = weights_.data();
  }
  const absl::Span<const float> visible(weights + n_sinks, static_cast<size_t>(n_far - n_sinks));
  for (int32_t i : top_.Select(visible, wanted.n, least)) {
    const int32_t token = i + static_cast<int32_t>(n_sinks);
    chosen_.push_back(token);
    for (int64_t h = 0; takes && h < group; ++h) scores_[(first_row + h) * n_far + token] = 0.0f;
  }
}

void FarTokens::Choose(const AttentionGeometry& g, const FarBlocks& far, const Wanted& wanted,
                       int64_t n_rows) {
  const int64_t n_far = far.n_tokens(), n_sinks = far.blocks[0]->n_sinks;
  kept_.clear();
  for (const auto& block : far.blocks) {
    kept_.push_back(block->View(g, far.layer, far.kv_head).kept);
  }
  chosen_.clear();
  first_choice_.assign(1, 0);
  const bool takes = !far.blocks[0]->shape.keeps_rest;
  for (int64_t r = 0; r < n_rows; r += g.group()) {
    ChooseFor(n_far, n_sinks, r, g.group(), wanted, takes);
    first_choice_.push_back(static_cast<int64_t>(chosen_.size()));
  }
}

void FarTokens::PrefetchChosen(const AttentionGeometry& g, const PrincipalShape& shape,
                               int64_t part, int64_t n_parts) const {
  const int64_t n = choices(0).n();
  for (int64_t i = n * part / n_parts; i < n * (part + 1) / n_parts; ++i) {
    const bool shares_group = i > 0 && chosen_[i] / kGroup == chosen_[i - 1] / kGroup;
    PrefetchKept(g, shape, kept_[chosen_[i] / shape.n_tokens], chosen_[i] % shape.n_tokens,
                 shares_group);
  }
}

void FarTokens::Gather(const AttentionGeometry& g, const PrincipalShape& shape,
                       const Choices& choices, int64_t to) {
  const int64_t number_bytes = StorageBytes(KeptReadType(shape));
  const int64_t key_bytes = DotWidth(g) * number_bytes;
  const int64_t value_bytes = g.head_dim_padded() * number_bytes;
  for (int64_t i = choices.begin; i < choices.end; ++i, ++to) {
    ReadKept(g, shape, kept_[chosen_[i] / shape.n_tokens], chosen_[i] % shape.n_tokens,
             chosen_keys_.data() + to * key_bytes, chosen_values_.data() + to * value_bytes);
  }
}

void FarTokens::GatherChosen(const AttentionGeometry& g, const PrincipalShape& shape, int64_t part,
                             int64_t n_parts) {
  const int64_t n = choices(0).n(), begin = n * part / n_parts;
  Gather(g, shape, {begin, n * (part + 1) / n_parts}, begin);
}

void FarTokens::ReadGathered(const AttentionGeometry& g, const PrincipalShape& shape, int64_t n,
                             int64_t first_row, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const StorageType type = KeptReadType(shape);
  const int64_t ld = RoundUp(n, kSoftmaxStep), padded = g.head_dim_padded();
  std::fill_n(chosen_scores_.begin(), g.group() * ld, 0.0f);
  kernels.DotRows(type, {rows.q(first_row), rows.q_stride(), chosen_keys_.data(),
                         chosen_scores_.data(), ld, g.group(), n, DotWidth(g)});
  for (int64_t h = 0; h < g.group(); ++h) {
    float* exact = chosen_scores_.data() + h * ld;
    std::fill(exact + n, exact + ld, kHiddenScore);
    const float factor = kernels.softmax_update(exact, ld, &rows.state(first_row + h)).factor;
    kernels.scale(factor, rows.out(first_row + h), padded);
  }
  kernels.Gemm(type,
               {chosen_scores_.data(), ld, chosen_values_.data(), padded, kernels.panel_columns,
                rows.out(first_row), padded, g.group(), padded, n, GemmArgs::Into::kAccumulate});
}

void FarTokens::ReadChosen(const AttentionGeometry& g, const PrincipalShape& shape,
                           RowBlock& rows) {
  for (int64_t r = 0; r < rows.n_rows(); r += g.group()) {
    const Choices chosen = choices(r / g.group());
    if (chosen.n() == 0) continue;
    if (r > 0) Gather(g, shape, chosen, 0);
    ReadGathered(g, shape, chosen.n(), r, rows);
  }
}

}  // namespace lowkey
