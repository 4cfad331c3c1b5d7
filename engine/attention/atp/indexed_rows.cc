#include "engine/attention/atp/indexed_rows.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/pages/paged_kv.h"

namespace lowkey {
namespace {

// Asks memory for what lies between.
void Prefetch(const uint8_t* begin, const uint8_t* end) {
  constexpr int64_t kLine = 64;
  for (; begin < end; begin += kLine) __builtin_prefetch(begin);
}

}  // namespace

void IndexedRows::Reserve(const AttentionGeometry& g, const PrincipalShape& shape,
                          const FarTokens::Size& size) {
  const int64_t n =
      std::max(TokenIndex::KeyComponents(g.key_dim()), TokenIndex::ValueComponents(g.head_dim));
  far_.Reserve(g, shape, size);
  Grow(low_, size.n_rows * (n + 1));
  Grow(rounded_, size.n_rows * n);
  Grow(scales_, size.n_rows);
  Grow(means_, size.n_rows);
  pages_.reserve(size.n_far_tokens / kPageTokens + 1);
}

void IndexedRows::FindPages(const AttentionGeometry& g, const FarBlocks& far) {
  pages_.clear();
  for (const auto& block : far.blocks) {
    const std::byte* page = block->View(g, far.layer, far.kv_head).index;
    for (int64_t t = 0; t < block->shape.n_tokens; t += kPageTokens) {
      pages_.push_back(TokenIndex::PageAt(g, page));
      page += TokenIndex::PageBytes(g);
    }
  }
  pages_.push_back({});
}

void IndexedRows::RoundRows(const TokenIndex::Half& half, int64_t n_rows) {
  constexpr float kMost = 127.0f;
  for (int64_t r = 0; r < n_rows; ++r) {
    const float* row = low_.data() + r * (half.n + 1);
    float largest = 0;
    for (int64_t j = 0; j < half.n; ++j) largest = std::max(largest, std::fabs(row[j]));
    const float factor = kMost / largest;
    const bool is_sound = factor > 0 && std::isfinite(factor);
    scales_[r] = is_sound ? largest / kMost : 0.0f;
    means_[r] = row[half.n];
    for (int64_t j = 0; j < half.n; ++j) {
      rounded_[r * half.n + j] =
          is_sound ? static_cast<int8_t>(std::nearbyint(row[j] * factor)) : int8_t{0};
    }
  }
}

void IndexedRows::Score(const TokenIndex& index, const FarBlocks& far, const RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const TokenIndex::Half& keys = index.keys(far.layer, far.kv_head);
  const int64_t ld = keys.n + 1, n_far = far.n_tokens(), n_rows = rows.n_rows();
  std::fill_n(low_.begin(), n_rows * ld, 0.0f);
  kernels.DotRows(StorageType::kFloat32, {rows.q(0), rows.q_stride(), keys.rows.data(), low_.data(),
                                          ld, n_rows, ld, keys.width});
  RoundRows(keys, n_rows);
  for (size_t p = 0; p + 1 < pages_.size(); ++p) {
    const TokenIndex::Page &page = pages_[p], &next = pages_[p + 1];
    Prefetch(next.keys, next.values);
    float* scores = far_.scores() + static_cast<int64_t>(p) * kPageTokens;
    kernels.score_levels({&index.book(), page.keys, page.key_gains, keys.n, rounded_.data(),
                          scales_.data(), means_.data(), n_rows, scores, n_far});
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    std::fill_n(far_.scores() + r * n_far, far.blocks[0]->n_sinks, kHiddenScore);
  }
}

void IndexedRows::Read(const AttentionGeometry& g, const TokenIndex& index, const FarBlocks& far,
                       RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const TokenIndex::Half& values = index.values(far.layer, far.kv_head);
  const int64_t ld = values.n + 1, n_far = far.n_tokens(), n_rows = rows.n_rows();
  std::fill_n(low_.begin(), n_rows * ld, 0.0f);
  for (size_t p = 0; p + 1 < pages_.size(); ++p) {
    const TokenIndex::Page &page = pages_[p], &next = pages_[p + 1];
    Prefetch(next.values, next.end);
    far_.PrefetchChosen(g, far.blocks[0]->shape, static_cast<int64_t>(p), n_far / kPageTokens);
    const float* weights = far_.scores() + static_cast<int64_t>(p) * kPageTokens;
    kernels.read_levels({&index.book(), page.values, page.value_gains, values.n, weights, n_far,
                         n_rows, low_.data(), ld});
    for (int64_t r = 0; r < n_rows; ++r) {
      low_[r * ld + values.n] += SumInChains(weights + r * n_far, kPageTokens);
    }
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    kernels.scale(far_.factor(r), low_.data() + r * ld, ld);
    rows.state(r).sum += low_[r * ld + values.n];
  }
  kernels.Gemm(StorageType::kFloat32, {low_.data(), ld, values.rows.data(), values.width,
                                       kernels.panel_columns, rows.out(0), rows.out_stride(),
                                       n_rows, values.width, ld, GemmArgs::Into::kAccumulate});
}

void IndexedRows::Add(const AttentionGeometry& g, const TokenIndex& index, const FarBlocks& far,
                      int64_t n_refined, RowBlock& rows) {
  FindPages(g, far);
  Score(index, far, rows);
  far_.Join(far.n_tokens(), rows);
  far_.Choose(g, far, n_refined, rows.n_rows());
  Read(g, index, far, rows);
  far_.ReadChosen(g, far.blocks[0]->shape, rows);
}

}  // namespace lowkey
