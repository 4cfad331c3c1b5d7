#include "engine/runtime/calibration/prefix_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/find_all_codes.h"

namespace lowkey {

PrefixStatistics::PrefixStatistics(const AttentionGeometry& geometry,
                                   std::vector<double> inverse_frequencies)
    : geometry_(geometry) {
  const AttentionGeometry& g = geometry_;
  shape_.group = {HeadsPerGroup(g.n_kv_heads, g.key_dim(), g.head_dim), g.key_dim(), g.head_dim};
  shape_.n_layers = g.n_layers;
  shape_.n_groups = g.n_kv_heads / shape_.group.n_heads;
  shape_.inverse_frequencies = std::move(inverse_frequencies);
  x_.assign(g.n_layers * shape_.n_groups, Moments(shape_.group.dim()));
  queries_.assign(g.n_layers * g.n_kv_heads, Moments(g.key_dim()));
}

void PrefixStatistics::TurnBack(int64_t row, int64_t n_heads, float* heads) const {
  const int64_t half = geometry_.key_dim() / 2;
  Kernels().rope(heads, cos_.data() + row * half, minus_sin_.data() + row * half, n_heads,
                 geometry_.key_dim());
}

void PrefixStatistics::AddKeysAndValues(const Counted& counted, int64_t group, ThreadPool& pool) {
  const LayerRows& rows = counted.rows;
  const HeadGroup& heads = shape_.group;
  const int64_t n_keys = heads.n_heads * heads.key_dim, n_values = heads.n_heads * heads.value_dim;
  gathered_.resize(counted.n_rows * heads.dim());
  for (int64_t i = 0; i < counted.n_rows; ++i) {
    const int64_t at = (counted.first_row + i) * rows.ld_qkv;
    float* x = gathered_.data() + i * heads.dim();
    std::copy_n(rows.k + at + group * n_keys, n_keys, x);
    TurnBack(i, heads.n_heads, x);
    std::copy_n(rows.v + at + group * n_values, n_values, x + n_keys);
  }
  x_[rows.layer * shape_.n_groups + group].Add(gathered_.data(), counted.n_rows, pool, scratch_);
}

void PrefixStatistics::AddQueries(const Counted& counted, int64_t kv_head, ThreadPool& pool) {
  const LayerRows& rows = counted.rows;
  const int64_t n = geometry_.group() * geometry_.key_dim();
  gathered_.resize(counted.n_rows * n);
  for (int64_t i = 0; i < counted.n_rows; ++i) {
    const int64_t at = (counted.first_row + i) * rows.ld_qkv;
    std::copy_n(rows.q + at + kv_head * n, n, gathered_.data() + i * n);
    TurnBack(i, geometry_.group(), gathered_.data() + i * n);
  }
  queries_[rows.layer * geometry_.n_kv_heads + kv_head].Add(
      gathered_.data(), counted.n_rows * geometry_.group(), pool, scratch_);
}

void PrefixStatistics::Add(const LayerRows& rows, absl::Span<const Segment> segments,
                           ThreadPool& pool) {
  for (const Segment& s : segments) {
    const int64_t n_skipped = std::max<int64_t>(0, kSkippedTokens - s.first_position);
    if (n_skipped >= s.n_rows) continue;
    const Counted counted{rows, s.first_row + n_skipped, s.first_position + n_skipped,
                          s.n_rows - n_skipped};
    cos_.clear(), minus_sin_.clear();
    for (int64_t i = 0; i < counted.n_rows; ++i) {
      for (const double frequency : shape_.inverse_frequencies) {
        const double angle = static_cast<double>(counted.first_position + i) * frequency;
        cos_.push_back(static_cast<float>(std::cos(angle)));
        minus_sin_.push_back(static_cast<float>(-std::sin(angle)));
      }
    }
    for (int64_t group = 0; group < shape_.n_groups; ++group) {
      AddKeysAndValues(counted, group, pool);
    }
    for (int64_t h = 0; h < geometry_.n_kv_heads; ++h) AddQueries(counted, h, pool);
  }
}

absl::StatusOr<PrefixCodes> PrefixStatistics::FindCodes(
    ThreadPool& pool, const std::function<void(int64_t)>& progress) const {
  PrefixCodes found = shape_;
  const int64_t heads = shape_.group.n_heads;
  const auto find = [&](int64_t code) {
    // Groups of heads follow one another, layer by layer, in both lists.
    const auto queries = absl::MakeConstSpan(queries_).subspan(code * heads, heads);
    return FindPrincipalCode(shape_.group, x_[code], queries);
  };
  LK_ASSIGN_OR_RETURN(found.codes, FindAllCodes(n_codes(), pool, find, progress));
  return found;
}

}  // namespace lowkey
