#include "engine/attention/atp/principal_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "engine/base/prefetch.h"

namespace lowkey {
namespace {

constexpr int64_t kSoftmaxStep = 16;

// Sums in 16 chains, whatever the vector width.
float SumOfSquares(const float* x, int64_t n) {
  float lanes[kSoftmaxStep] = {}, sum = 0;
  int64_t i = 0;
  for (; i + kSoftmaxStep <= n; i += kSoftmaxStep) {
    for (int64_t j = 0; j < kSoftmaxStep; ++j) lanes[j] += x[i + j] * x[i + j];
  }
  for (float lane : lanes) sum += lane;
  for (; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

void ScaleColumns(const float* scales, int64_t n_rows, int64_t n_cols, float* x) {
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_cols; ++j) x[i * n_cols + j] *= scales[j];
  }
}

// Adds low [n_rows, rank + mean rows] times V' and the mean value to the rows. Scales `low`.
void AddValues(const PrincipalShape& shape, const PrincipalView& view, float* low, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const int64_t ld = view.rank + shape.n_mean_rows(), padded = rows.out_stride();
  if (view.value_scales != nullptr) ScaleColumns(view.value_scales, rows.n_rows(), ld, low);
  kernels.Gemm(shape.principal_type,
               {low, ld, view.values, padded, kernels.panel_columns, rows.out(0), padded,
                rows.n_rows(), padded, ld, GemmArgs::Into::kAccumulate});
}

}  // namespace

void PrincipalRows::Reserve(const AttentionGeometry& g, const PrincipalShape& shape,
                            const FarTokens::Size& size) {
  far_.Reserve(g, shape, size);
  Grow(low_q_, size.n_rows * (shape.rank + shape.n_mean_rows()));
  Grow(low_out_, size.n_rows * (shape.rank + shape.n_mean_rows()));
  Grow(sums_, size.n_rows);
  if (!shape.packs_basis) return;
  Grow(codes_, shape.rank * kBasisGroup);
  Grow(code_scales_, shape.rank);
  Grow(scaled_, size.n_rows * shape.rank);
}

void PrincipalRows::Project(const AttentionGeometry& g, const PrincipalShape& shape,
                            const PrincipalView& view, const RowBlock& rows) {
  const int64_t ld = view.rank + shape.n_mean_rows();
  std::fill_n(low_q_.begin(), rows.n_rows() * ld, 0.0f);
  Kernels().DotRows(shape.principal_type, {rows.q(0), rows.q_stride(), view.keys, low_q_.data(), ld,
                                           rows.n_rows(), ld, DotWidth(g)});
  if (view.key_scales != nullptr) ScaleColumns(view.key_scales, rows.n_rows(), ld, low_q_.data());
}

void PrincipalRows::Unpack(const PrincipalShape& shape, const PrincipalView& view, int64_t group) {
  const std::byte* from = view.u + group * shape.UGroupBytes(view.rank);
  const auto* scales = reinterpret_cast<const uint16_t*>(from);
  for (int64_t j = 0; j < view.rank; ++j) code_scales_[j] = ToFloat(BFloat16{scales[j]});
  Kernels().unpack_codes(4, reinterpret_cast<const uint8_t*>(scales + view.rank), codes_.data(),
                         view.rank * kBasisGroup);
}

void PrincipalRows::ScorePacked(const PrincipalShape& shape, const PrincipalView& view,
                                const Scores& scores, int64_t n_rows) {
  const int64_t rank = view.rank, ld = rank + shape.n_mean_rows();
  for (int64_t group = 0; group < shape.n_tokens / kBasisGroup; ++group) {
    Unpack(shape, view, group);
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t j = 0; j < rank; ++j) {
        scaled_[r * rank + j] = low_q_[r * ld + j] * code_scales_[j];
      }
    }
    Kernels().Gemm(StorageType::kInt8,
                   {scaled_.data(), rank, codes_.data(), kBasisGroup, Kernels().panel_columns,
                    scores.data + group * kBasisGroup, scores.stride, n_rows, kBasisGroup, rank,
                    GemmArgs::Into::kAccumulate});
  }
}

void PrincipalRows::ReadPacked(const PrincipalShape& shape, const PrincipalView& view,
                               const Scores& weights, int64_t n_rows) {
  const int64_t rank = view.rank, ld = rank + shape.n_mean_rows();
  for (int64_t group = 0; group < shape.n_tokens / kBasisGroup; ++group) {
    Unpack(shape, view, group);
    std::fill_n(scaled_.begin(), n_rows * rank, 0.0f);
    Kernels().DotRows(StorageType::kInt8,
                      {weights.data + group * kBasisGroup, weights.stride, codes_.data(),
                       scaled_.data(), rank, n_rows, rank, kBasisGroup});
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t j = 0; j < rank; ++j) {
        low_out_[r * ld + j] += scaled_[r * rank + j] * code_scales_[j];
      }
    }
  }
}

void PrincipalRows::Score(const AttentionGeometry& g, const PrincipalBlock& block,
                          const PrincipalView& view, const PrincipalView& next,
                          const RowBlock& rows, const Scores& scores) {
  const KernelTable& kernels = Kernels();
  const PrincipalShape& shape = block.shape;
  const int64_t rank = view.rank, ld = rank + shape.n_mean_rows();
  Project(g, shape, view, rows);
  // q k_mean + (q K'^T) U^T.
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    const float* mean = low_q_.data() + r * ld + rank;
    std::fill_n(scores.data + r * scores.stride, shape.n_tokens,
                std::accumulate(mean, mean + shape.n_mean_rows(), 0.0f));
  }
  if (shape.packs_basis) ScorePacked(shape, view, scores, rows.n_rows());
  const int64_t tile_bytes = rank * kPageTokens * StorageBytes(shape.u_type);
  for (int64_t t = 0; !shape.packs_basis && t < shape.n_tokens / kPageTokens; ++t) {
    kernels.Gemm(shape.u_type,
                 {low_q_.data(), ld, view.u + t * tile_bytes, kPageTokens, kernels.panel_columns,
                  scores.data + t * kPageTokens, scores.stride, rows.n_rows(), kPageTokens, rank,
                  GemmArgs::Into::kAccumulate},
                 next.u + t * tile_bytes);
  }
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    std::fill_n(scores.data + r * scores.stride, block.n_sinks, kHiddenScore);
  }
}

void PrincipalRows::Read(const PrincipalBlock& block, const PrincipalView& view,
                         const Scores& weights, bool is_joined, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const PrincipalShape& shape = block.shape;
  const int64_t rank = view.rank, ld = rank + shape.n_mean_rows();
  // (w U) V' + sum(w) v_mean
  std::fill_n(low_out_.begin(), rows.n_rows() * ld, 0.0f);
  if (shape.packs_basis) ReadPacked(shape, view, weights, rows.n_rows());
  const int64_t tile_bytes = rank * kPageTokens * StorageBytes(shape.u_type);
  for (int64_t t = 0; !shape.packs_basis && t < shape.n_tokens / kPageTokens; ++t) {
    kernels.DotRows(shape.u_type,
                    {weights.data + t * kPageTokens, weights.stride, view.u + t * tile_bytes,
                     low_out_.data(), ld, rows.n_rows(), rank, kPageTokens});
  }
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    float* row = low_out_.data() + r * ld;
    std::fill(row + rank, row + ld, sums_[r]);
    if (is_joined && far_.factor(r) != 1.0f) kernels.scale(far_.factor(r), row, ld);
  }
  AddValues(shape, view, low_out_.data(), rows);
}

void PrincipalRows::Add(const AttentionGeometry& g, const FarBlocks& far, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  for (const auto& block : far.blocks) {
    const PrincipalView view = block->View(g, far.layer, far.kv_head);
    const Scores scores{far_.scores(), block->shape.n_tokens};
    Score(g, *block, view, view, rows, scores);
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      const SoftmaxUpdate update =
          kernels.softmax_update(scores.data + r * scores.stride, scores.stride, &rows.state(r));
      if (update.factor != 1.0f) kernels.scale(update.factor, rows.out(r), g.head_dim_padded());
      sums_[r] = update.sum;
    }
    Read(*block, view, scores, false, rows);
  }
}

void PrincipalRows::AddLinear(const AttentionGeometry& g, const FarBlocks& far, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const int64_t padded = g.head_dim_padded();
  for (auto end = static_cast<int64_t>(far.blocks.size()); end > 0;) {
    const PrincipalBlock& block = *far.blocks[end - 1];
    end -= block.n_blocks;
    const PrincipalView view = block.View(g, far.layer, far.kv_head);
    const int64_t rank = view.rank, ld = rank + block.shape.n_mean_rows();
    const auto count = static_cast<float>(block.n_represented_tokens());
    Project(g, block.shape, view, rows);
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      float* a = low_q_.data() + r * ld;
      const float score =
          std::accumulate(a + rank, a + ld, 0.0f) + SumOfSquares(a, rank) / (2 * count);
      SoftmaxState& state = rows.state(r);
      const float top = std::max(state.max, score);
      const float factor = std::exp(state.max - top), weight = std::exp(score - top);
      if (factor != 1.0f) kernels.scale(factor, rows.out(r), padded);
      state = {top, state.sum * factor + count * weight};
      // weight (a V' + c v_mean)
      for (int64_t j = 0; j < rank; ++j) a[j] *= weight;
      std::fill(a + rank, a + ld, count * weight);
    }
    AddValues(block.shape, view, low_q_.data(), rows);
  }
}

void PrincipalRows::ReadFar(const AttentionGeometry& g, const FarBlocks& far, RowBlock& rows) {
  const auto n_blocks = static_cast<int64_t>(far.blocks.size());
  const int64_t width = far.blocks[0]->shape.n_tokens, n_far = n_blocks * width;
  for (int64_t b = 0; b < n_blocks; ++b) {
    // Memory fetches the next block's values and some of the chosen tokens during the product.
    const PrincipalView& next = views_[std::min(b + 1, n_blocks - 1)];
    Prefetch(next.values, next.values - next.keys);
    far_.PrefetchChosen(g, far.blocks[0]->shape, b, n_blocks);
    const Scores weights{far_.scores() + b * width, n_far};
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      sums_[r] = SumInChains(weights.data + r * n_far, width);
      rows.state(r).sum += sums_[r] * far_.factor(r);
    }
    Read(*far.blocks[b], views_[b], weights, true, rows);
  }
}

void PrincipalRows::AddRefined(const AttentionGeometry& g, const FarBlocks& far, int64_t n_refined,
                               RowBlock& rows) {
  const auto n_blocks = static_cast<int64_t>(far.blocks.size());
  const PrincipalShape& shape = far.blocks[0]->shape;
  const int64_t width = shape.n_tokens, n_far = far.n_tokens();
  views_.clear();
  for (const auto& block : far.blocks) views_.push_back(block->View(g, far.layer, far.kv_head));
  for (int64_t b = 0; b < n_blocks; ++b) {
    const PrincipalView& next = views_[std::min(b + 1, n_blocks - 1)];
    Prefetch(next.keys, next.values - next.keys);
    Score(g, *far.blocks[b], views_[b], next, rows, {far_.scores() + b * width, n_far});
  }
  far_.Join(n_far, rows);
  far_.Choose(g, far, {n_refined}, rows.n_rows());
  ReadFar(g, far, rows);
  far_.GatherChosen(g, shape, 0, 1);
  far_.ReadChosen(g, shape, rows);
}

}  // namespace lowkey
