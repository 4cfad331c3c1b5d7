#include "engine/attention/atp/indexed_rows.h"

#include <algorithm>

#include "engine/attention/pages/paged_kv.h"

namespace lowkey {
namespace {

// Calls body(index page, its first far token) for every page of the far blocks.
template <typename Body>
void EachPage(const AttentionGeometry& g, const FarBlocks& far, const Body& body) {
  const int64_t page_bytes = TokenIndex::PageBytes(g);
  int64_t token = 0;
  for (const auto& block : far.blocks) {
    const std::byte* page = block->View(g, far.layer, far.kv_head).index;
    const int64_t end = token + block->shape.n_tokens;
    for (; token < end; token += kPageTokens, page += page_bytes) body(page, token);
  }
}

}  // namespace

void IndexedRows::Reserve(const AttentionGeometry& g, const PrincipalShape& shape,
                          const TokenIndex& index, const FarTokens::Size& size) {
  far_.Reserve(g, shape, size);
  Grow(levels_, index.most_components() * kPageTokens);
  Grow(low_q_, size.n_rows * (index.most_components() + 1));
  Grow(low_out_, size.n_rows * (index.most_components() + 1));
  Grow(weights_, size.n_rows * kPageTokens);
}

void IndexedRows::Score(const AttentionGeometry& g, const TokenIndex& index, const FarBlocks& far,
                        const RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const TokenIndex::Half& keys = index.keys(far.layer, far.kv_head);
  const int64_t ld = keys.n() + 1, n_far = far.n_tokens(), n_rows = rows.n_rows();
  std::fill_n(low_q_.begin(), n_rows * ld, 0.0f);
  kernels.DotRows(StorageType::kFloat32, {rows.q(0), rows.q_stride(), keys.rows.data(),
                                          low_q_.data(), ld, n_rows, ld, keys.width});
  EachPage(g, far, [&](const std::byte* page, int64_t token) {
    float gains[kPageTokens];
    index.DecodeKeys(far.layer, far.kv_head, page, levels_.data(), gains);
    float* scores = far_.scores() + token;
    kernels.Gemm(StorageType::kFloat32,
                 {low_q_.data(), ld, levels_.data(), kPageTokens, kernels.panel_columns, scores,
                  n_far, n_rows, kPageTokens, keys.n()});
    for (int64_t r = 0; r < n_rows; ++r) {
      const float mean = low_q_[r * ld + keys.n()];
      for (int64_t t = 0; t < kPageTokens; ++t) {
        scores[r * n_far + t] = mean + gains[t] * scores[r * n_far + t];
      }
    }
  });
  for (int64_t r = 0; r < n_rows; ++r) {
    std::fill_n(far_.scores() + r * n_far, far.blocks[0]->n_sinks, kHiddenScore);
  }
}

void IndexedRows::Read(const AttentionGeometry& g, const TokenIndex& index, const FarBlocks& far,
                       RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const TokenIndex::Half& values = index.values(far.layer, far.kv_head);
  const int64_t ld = values.n() + 1, n_far = far.n_tokens(), n_rows = rows.n_rows();
  const auto n_pages = static_cast<int64_t>(n_far / kPageTokens);
  std::fill_n(low_out_.begin(), n_rows * ld, 0.0f);
  EachPage(g, far, [&](const std::byte* page, int64_t token) {
    far_.PrefetchChosen(token / kPageTokens, n_pages);
    float gains[kPageTokens];
    index.DecodeValues(far.layer, far.kv_head, page, levels_.data(), gains);
    for (int64_t r = 0; r < n_rows; ++r) {
      const float* weights = far_.scores() + r * n_far + token;
      low_out_[r * ld + values.n()] += SumInChains(weights, kPageTokens);
      for (int64_t t = 0; t < kPageTokens; ++t) {
        weights_[r * kPageTokens + t] = weights[t] * gains[t];
      }
    }
    kernels.DotRows(StorageType::kFloat32, {weights_.data(), kPageTokens, levels_.data(),
                                            low_out_.data(), ld, n_rows, values.n(), kPageTokens});
  });
  for (int64_t r = 0; r < n_rows; ++r) {
    kernels.scale(far_.factor(r), low_out_.data() + r * ld, ld);
    rows.state(r).sum += low_out_[r * ld + values.n()];
  }
  kernels.Gemm(StorageType::kFloat32, {low_out_.data(), ld, values.rows.data(), values.width,
                                       kernels.panel_columns, rows.out(0), rows.out_stride(),
                                       n_rows, values.width, ld, GemmArgs::Into::kAccumulate});
}

void IndexedRows::Add(const AttentionGeometry& g, const TokenIndex& index, const FarBlocks& far,
                      int64_t n_refined, RowBlock& rows) {
  Score(g, index, far, rows);
  far_.Join(far.n_tokens(), rows);
  far_.Choose(g, far, n_refined, rows.n_rows());
  Read(g, index, far, rows);
  far_.ReadChosen(g, far.blocks[0]->shape, rows);
}

}  // namespace lowkey
