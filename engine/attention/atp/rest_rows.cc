#include "engine/attention/atp/rest_rows.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/prefetch.h"
#include "engine/base/round_up.h"

namespace lowkey {
namespace {

// exp of this is still far from what float32 holds.
constexpr float kMostAdded = 60.0f;

// Returns the columns of what the index has of values, and of the weights' sum, as products take them.
int64_t LeadColumns(int64_t n_values) { return RoundUp(n_values + 1, 32); }

}  // namespace

void RestRows::Reserve(const AttentionGeometry& g, const FarTokens::Size& size, int64_t n_parts) {
  const int64_t n_keys = TokenIndex::RestKeys(g).n_padded();
  const int64_t n_values = TokenIndex::RestValues(g).n_padded();
  const int64_t n_chosen = size.n_rows / g.group() * size.n_refined;
  Grow(queries_, size.n_rows * n_keys);
  Grow(key_levels_, n_chosen * n_keys);
  Grow(value_levels_, n_chosen * n_values);
  Grow(key_scales_, n_chosen);
  Grow(value_scales_, n_chosen);
  const int64_t n_lead = LeadColumns(TokenIndex::ValueComponents(g.head_dim));
  Grow(lead_value_levels_, n_chosen * n_lead);
  Grow(lead_value_scales_, n_chosen);
  const int64_t n_lead_keys = LeadColumns(TokenIndex::KeyComponents(g.key_dim()));
  Grow(lead_queries_, size.n_rows * n_lead_keys);
  Grow(means_, size.n_rows);
  Grow(lead_key_levels_, n_chosen * n_lead_keys);
  Grow(lead_key_scales_, n_chosen);
  Grow(lead_scores_, size.n_rows * size.n_refined);
  Grow(scores_, size.n_rows * size.n_refined);
  Grow(weights_, size.n_rows * size.n_refined);
  Grow(lead_weights_, size.n_rows * size.n_refined);
  Grow(lead_sums_, n_parts * size.n_rows * n_lead);
  Grow(sums_, n_parts * size.n_rows * n_values);
}

void RestRows::Begin(const IndexedBlocks& blocks, const RowBlock& rows) {
  const TokenRest::Half& keys = blocks.rest_keys();
  const int64_t n = keys.n_padded();
  const TokenIndex::Half& lead = blocks.keys();
  const int64_t n_lead = LeadColumns(lead.n);
  std::fill_n(lead_queries_.begin(), rows.n_rows() * n_lead, 0.0f);
  Kernels().DotRows(StorageType::kFloat32,
                    {rows.q(0), rows.q_stride(), lead.rows.data(), lead_queries_.data(), n_lead,
                     rows.n_rows(), lead.n + 1, lead.width});
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    means_[r] = std::exchange(lead_queries_[r * n_lead + lead.n], 0.0f);
  }
  std::fill_n(queries_.begin(), rows.n_rows() * n, 0.0f);
  Kernels().DotRows(StorageType::kFloat32, {rows.q(0), rows.q_stride(), keys.rows.data(),
                                            queries_.data(), n, rows.n_rows(), n, keys.width});
}

void RestRows::Gather(const IndexedBlocks& blocks, const Chosen& chosen, const FarTokens& far) {
  const TokenRest::Half &keys = blocks.rest_keys(), &values = blocks.rest_values();
  const int64_t n_keys = keys.n_padded(), n_values = values.n_padded();
  const int64_t n_lead_keys = LeadColumns(blocks.keys().n);
  const int64_t n_lead_values = LeadColumns(blocks.values().n);
  const int64_t key_bytes = keys.bytes(), token_bytes = key_bytes + values.bytes();
  const int64_t block_tokens = blocks.shape().n_tokens;
  int64_t number = -1;
  TokenIndex::Page page;
  for (int64_t i = chosen.begin; i < chosen.end; ++i) {
    const int64_t token = far.chosen(i), at = token % kPageTokens;
    if (token / kPageTokens != number) page = blocks.page(number = token / kPageTokens);
    const std::byte* kept = far.kept(token / block_tokens) + token % block_tokens * token_bytes;
    key_scales_[i] = TokenRest::Read(keys, kept, key_levels_.data() + i * n_keys);
    value_scales_[i] =
        TokenRest::Read(values, kept + key_bytes, value_levels_.data() + i * n_values);
    lead_key_scales_[i] =
        blocks.index.ReadKey(page, at, blocks.keys().n, lead_key_levels_.data() + i * n_lead_keys);
    lead_value_scales_[i] = blocks.index.ReadValue(page, at, blocks.values().n,
                                                   lead_value_levels_.data() + i * n_lead_values);
  }
}

void RestRows::ReadChosen(const IndexedBlocks& blocks, const Chosen& chosen, const PartSums& sums,
                          FarTokens& far) {
  const KernelTable& kernels = Kernels();
  const int64_t group = blocks.geometry.group(), n_far = blocks.far.n_tokens();
  const int64_t n_keys = blocks.rest_keys().n_padded();
  const int64_t n_values = blocks.rest_values().n_padded();
  const int64_t n_lead = LeadColumns(blocks.values().n);
  const int64_t n = chosen.end - chosen.begin, ld = far.n_chosen();
  Gather(blocks, chosen, far);
  const int64_t at = chosen.first_row * ld + chosen.begin % ld;
  const int64_t n_lead_keys = LeadColumns(blocks.keys().n);
  float* lead_scores = lead_scores_.data() + at;
  for (int64_t h = 0; h < group; ++h) std::fill_n(lead_scores + h * ld, n, 0.0f);
  kernels.DotRows(StorageType::kInt8,
                  {lead_queries_.data() + chosen.first_row * n_lead_keys, n_lead_keys,
                   lead_key_levels_.data() + chosen.begin * n_lead_keys, lead_scores, ld, group, n,
                   n_lead_keys});
  float *added = scores_.data() + at, *weights = weights_.data() + at;
  float *lead_weights = lead_weights_.data() + at, *lead = sums.lead + chosen.first_row * n_lead;
  for (int64_t h = 0; h < group; ++h) std::fill_n(added + h * ld, n, 0.0f);
  kernels.DotRows(StorageType::kInt8,
                  {queries_.data() + chosen.first_row * n_keys, n_keys,
                   key_levels_.data() + chosen.begin * n_keys, added, ld, group, n, n_keys});
  for (int64_t h = 0; h < group; ++h) {
    float* far_weights = far.scores() + (chosen.first_row + h) * n_far;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t choice = chosen.begin + i;
      float& far_weight = far_weights[far.chosen(choice)];
      const float score = means_[chosen.first_row + h] +
                          lead_scores[h * ld + i] * lead_key_scales_[choice] +
                          added[h * ld + i] * key_scales_[choice];
      const float weight =
          std::exp(std::min(score - far.far_max(chosen.first_row + h), kMostAdded));
      far_weight = 0;
      weights[h * ld + i] = weight * value_scales_[choice];
      lead_weights[h * ld + i] = weight * lead_value_scales_[choice];
      lead[h * n_lead + blocks.values().n] += weight;
    }
  }
  const auto add = [&](const float* left, const int8_t* levels, int64_t width, float* to) {
    kernels.Gemm(StorageType::kInt8,
                 {left, ld, levels + chosen.begin * width, width, kernels.panel_columns, to, width,
                  group, width, n, GemmArgs::Into::kAccumulate});
  };
  add(weights, value_levels_.data(), n_values, sums.rest + chosen.first_row * n_values);
  add(lead_weights, lead_value_levels_.data(), n_lead, lead);
}

void RestRows::ReadPart(const IndexedBlocks& blocks, const Part& part, int64_t n_rows,
                        FarTokens& far, float* index_sums) {
  const int64_t group = blocks.geometry.group(), n_chosen = far.n_chosen();
  const int64_t n_values = blocks.rest_values().n_padded();
  const int64_t token_bytes = blocks.shape().KeptTokenBytes(blocks.geometry);
  const int64_t block_tokens = blocks.shape().n_tokens;
  const int64_t n_lead = LeadColumns(blocks.values().n), n_index = blocks.values().n + 1;
  const PartSums sums = {sums_.data() + part.number * n_rows * n_values,
                         lead_sums_.data() + part.number * n_rows * n_lead};
  std::fill_n(sums.rest, n_rows * n_values, 0.0f);
  std::fill_n(sums.lead, n_rows * n_lead, 0.0f);
  for (const bool reads : {false, true}) {
    for (int64_t row = 0; row < n_rows; row += group) {
      const int64_t first = row / group * n_chosen;
      const Chosen chosen = {row, far.FirstChosenFrom(first, part.begin),
                             far.FirstChosenFrom(first, part.end)};
      for (int64_t i = chosen.begin; !reads && i < chosen.end; ++i) {
        const int64_t token = far.chosen(i);
        Prefetch(far.kept(token / block_tokens) + token % block_tokens * token_bytes, token_bytes);
      }
      if (reads && chosen.begin < chosen.end) ReadChosen(blocks, chosen, sums, far);
    }
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t j = 0; j < n_index; ++j) index_sums[r * n_index + j] += sums.lead[r * n_lead + j];
  }
}

void RestRows::Finish(const IndexedBlocks& blocks, int64_t n_parts, const FarTokens& far,
                      RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const TokenRest::Half& values = blocks.rest_values();
  const int64_t n = values.n_padded(), n_rows = rows.n_rows();
  float* sums = sums_.data();
  for (int64_t part = 1; part < n_parts; ++part) {
    kernels.add(sums + part * n_rows * n, sums, n_rows * n);
  }
  for (int64_t r = 0; r < n_rows; ++r) kernels.scale(far.factor(r), sums + r * n, n);
  kernels.Gemm(StorageType::kFloat32,
               {sums, n, values.rows.data(), values.width, kernels.panel_columns, rows.out(0),
                rows.out_stride(), n_rows, values.width, n, GemmArgs::Into::kAccumulate});
}

}  // namespace lowkey
