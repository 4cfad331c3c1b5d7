#include "engine/attention/atp/calibrated/rest_rows.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/prefetch.h"
#include "engine/base/round_up.h"

namespace lowkey {
namespace {

// A token's score counts as at most this much above the largest that the index gave. exp of it is
// far from the largest float.
constexpr float kMostAbove = 60.0f;

// Returns the columns of n components, and of the weights' sum behind them, as products take them.
int64_t LeadColumns(int64_t n) { return RoundUp(n + 1, 32); }

}  // namespace

void RestRows::Reserve(const AttentionGeometry& g, const FarTokens::Size& size, int64_t n_parts) {
  const int64_t n_keys = TokenRest::MaxPadded(g.key_dim());
  const int64_t n_values = TokenRest::MaxPadded(g.head_dim);
  const int64_t n_chosen = size.n_rows / g.group() * size.n_refined;
  Grow(queries_, size.n_rows * n_keys);
  Grow(key_levels_, n_chosen * n_keys);
  Grow(value_levels_, n_chosen * n_values);
  Grow(key_scales_, n_chosen);
  Grow(value_scales_, n_chosen);
  const int64_t n_lead = LeadColumns(TokenIndex::MaxValueComponents(g));
  Grow(lead_value_levels_, n_chosen * n_lead);
  Grow(lead_value_scales_, n_chosen);
  const int64_t n_lead_keys = LeadColumns(TokenIndex::MaxKeyComponents(g));
  Grow(lead_queries_, size.n_rows * n_lead_keys);
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
  const int64_t n_lead = LeadColumns(lead.n());
  std::fill_n(lead_queries_.begin(), rows.n_rows() * n_lead, 0.0f);
  Kernels().DotRows(StorageType::kFloat32,
                    {rows.q(0), rows.q_stride(), lead.rows.data(), lead_queries_.data(), n_lead,
                     rows.n_rows(), lead.n(), lead.width});
  std::fill_n(queries_.begin(), rows.n_rows() * n, 0.0f);
  Kernels().DotRows(StorageType::kFloat32, {rows.q(0), rows.q_stride(), keys.rows.data(),
                                            queries_.data(), n, rows.n_rows(), n, keys.width});
}

void RestRows::Gather(const IndexedBlocks& blocks, const FarTokens::Choices& chosen,
                      const FarTokens& far) {
  const TokenRest::Half &keys = blocks.rest_keys(), &values = blocks.rest_values();
  const int64_t n_keys = keys.n_padded(), n_values = values.n_padded();
  const int64_t n_lead_keys = LeadColumns(blocks.keys().n());
  const int64_t n_lead_values = LeadColumns(blocks.values().n());
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
    int8_t* lead_key = lead_key_levels_.data() + i * n_lead_keys;
    int8_t* lead_value = lead_value_levels_.data() + i * n_lead_values;
    lead_key_scales_[i] =
        TokenRest::kLeadUnit * blocks.index.ReadKey(page, at, blocks.keys().bands, lead_key);
    lead_value_scales_[i] =
        TokenRest::kLeadUnit * blocks.index.ReadValue(page, at, blocks.values().bands, lead_value);
    TokenRest::ReadLead(keys, kept, lead_key);
    TokenRest::ReadLead(values, kept + key_bytes, lead_value);
    // Behind them is the place of the weights' sum.
    std::fill(lead_value + blocks.values().n(), lead_value + n_lead_values, int8_t{0});
  }
}

void RestRows::ReadChosen(const IndexedBlocks& blocks, const Chosen& chosen, const PartSums& sums,
                          FarTokens& far) {
  const KernelTable& kernels = Kernels();
  const int64_t group = blocks.geometry.group(), row = chosen.first_row;
  const int64_t n_lead = LeadColumns(blocks.values().n());
  const int64_t n = chosen.choices.n(), begin = chosen.choices.begin, ld = blocks.n_refined;
  Gather(blocks, chosen.choices, far);
  const int64_t at = row * ld + begin - far.choices(row / group).begin;
  const auto score = [&](const std::vector<float>& queries, const std::vector<int8_t>& levels,
                         int64_t width, float* to) {
    for (int64_t h = 0; h < group; ++h) std::fill_n(to + h * ld, n, 0.0f);
    kernels.DotRows(StorageType::kInt8, {queries.data() + row * width, width,
                                         levels.data() + begin * width, to, ld, group, n, width});
  };
  float *lead_scores = lead_scores_.data() + at, *scores = scores_.data() + at;
  score(lead_queries_, lead_key_levels_, LeadColumns(blocks.keys().n()), lead_scores);
  score(queries_, key_levels_, blocks.rest_keys().n_padded(), scores);
  float *lead_weights = lead_weights_.data() + at, *weights = weights_.data() + at;
  float* lead = sums.lead + row * n_lead;
  for (int64_t h = 0; h < group; ++h) {
    const int64_t far_row = (row + h) * blocks.far.n_tokens();
    float* far_weights = far.scores() + far_row;
    const float* means = chosen.mean_scores + far_row;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t choice = begin + i, to = h * ld + i;
      const float whole = means[far.chosen(choice)] + lead_scores[to] * lead_key_scales_[choice] +
                          scores[to] * key_scales_[choice];
      const float weight = std::exp(std::min(whole - far.far_max(row + h), kMostAbove));
      far_weights[far.chosen(choice)] = 0;
      weights[to] = weight * value_scales_[choice];
      lead_weights[to] = weight * lead_value_scales_[choice];
      lead[h * n_lead + blocks.values().n()] += weight;
    }
  }
  const auto add = [&](const float* left, const std::vector<int8_t>& levels, int64_t width,
                       float* to) {
    kernels.Gemm(StorageType::kInt8,
                 {left, ld, levels.data() + begin * width, width, kernels.panel_columns, to, width,
                  group, width, n, GemmArgs::Into::kAccumulate});
  };
  const int64_t n_values = blocks.rest_values().n_padded();
  add(weights, value_levels_, n_values, sums.rest + row * n_values);
  add(lead_weights, lead_value_levels_, n_lead, lead);
}

void RestRows::ReadPart(const IndexedBlocks& blocks, const Part& part, int64_t n_rows,
                        FarTokens& far, float* index_sums) {
  const int64_t group = blocks.geometry.group(), block_tokens = blocks.shape().n_tokens;
  const int64_t token_bytes = blocks.shape().KeptTokenBytes(blocks.geometry);
  const int64_t n_values = blocks.rest_values().n_padded();
  const int64_t n_lead = LeadColumns(blocks.values().n()), n_index = blocks.values().n() + 1;
  const PartSums sums = {sums_.data() + part.number * n_rows * n_values,
                         lead_sums_.data() + part.number * n_rows * n_lead};
  std::fill_n(sums.rest, n_rows * n_values, 0.0f);
  std::fill_n(sums.lead, n_rows * n_lead, 0.0f);
  for (int64_t row = 0; row < n_rows; row += group) {
    const FarTokens::Choices chosen = far.ChoicesIn(row / group, part.begin, part.end);
    for (int64_t i = chosen.begin; i < chosen.end; ++i) {
      const int64_t token = far.chosen(i);
      Prefetch(far.kept(token / block_tokens) + token % block_tokens * token_bytes, token_bytes);
    }
  }
  for (int64_t row = 0; row < n_rows; row += group) {
    const Chosen chosen{row, far.ChoicesIn(row / group, part.begin, part.end), part.mean_scores};
    if (chosen.choices.n() > 0) ReadChosen(blocks, chosen, sums, far);
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
  if (n == 0) return;  // the index has all components
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
