#include "engine/attention/atp/principal_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/attention/paged_kv.h"
#include "engine/attention/quantised_kv.h"
#include "engine/base/dtype.h"

namespace lowkey {
namespace {

constexpr float kHidden = -std::numeric_limits<float>::infinity();
constexpr int64_t kSoftmaxStep = 16;

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <typename T>
void Grow(std::vector<T>& v, int64_t n) {
  if (static_cast<int64_t>(v.size()) < n) v.resize(n);
}

// In 16 chains, whatever the vector width.
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

// The same way; n is a multiple of 16.
float Sum(const float* x, int64_t n) {
  float lanes[kSoftmaxStep] = {};
  for (int64_t i = 0; i < n; i += kSoftmaxStep) {
    for (int64_t j = 0; j < kSoftmaxStep; ++j) lanes[j] += x[i + j];
  }
  for (int64_t half = kSoftmaxStep / 2; half > 0; half /= 2) {
    for (int64_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  }
  return lanes[0];
}

void Prefetch(const std::byte* at, int64_t n_bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < n_bytes; i += kLine) __builtin_prefetch(at + i);
}

// Brings in what is scored next. Blocks lie far apart, so that hardware that reads ahead has to be
// told where; it finds the rest of a long basis by itself.
void PrefetchBlock(const PrincipalShape& shape, const PrincipalView& view) {
  constexpr int64_t kMostBytes = 4096;
  Prefetch(view.u, std::min(shape.UBytes(view.rank), kMostBytes));
  Prefetch(view.keys, std::min<int64_t>(view.kept - view.keys, kMostBytes));
}

// As chosen tokens are gathered: quantised ones are widened.
StorageType ChosenType(const PrincipalShape& shape) {
  return shape.kept_type == StorageType::kInt8 ? StorageType::kFloat32 : shape.kept_type;
}

void ScaleColumns(const float* scales, int64_t n_rows, int64_t n_cols, float* x) {
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_cols; ++j) x[i * n_cols + j] *= scales[j];
  }
}

}  // namespace

void PrincipalRows::Reserve(const AttentionGeometry& g, const PrincipalShape& shape,
                            const Size& size) {
  Grow(scores_, size.n_rows * size.n_far_tokens);
  Grow(low_q_, size.n_rows * (shape.rank + shape.n_mean_rows()));
  Grow(low_out_, size.n_rows * (shape.rank + shape.n_mean_rows()));
  for (std::vector<float>* v : {&sums_, &factors_, &shares_}) Grow(*v, size.n_rows);
  if (shape.packs_basis) {
    Grow(codes_, shape.rank * kBasisGroup);
    Grow(code_scales_, shape.rank);
    Grow(scaled_, size.n_rows * shape.rank);
  }
  if (size.n_refined == 0) return;
  const int64_t n_chosen = RoundUp(size.n_refined, kSoftmaxStep);
  Grow(weights_, size.n_far_tokens);
  Grow(chosen_scores_, g.group() * n_chosen);
  Grow(chosen_keys_, n_chosen * DotWidth(g) * StorageBytes(ChosenType(shape)));
  Grow(chosen_values_, n_chosen * g.head_dim_padded() * StorageBytes(ChosenType(shape)));
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
  Kernels().unpack_int4(reinterpret_cast<const uint8_t*>(scales + view.rank), codes_.data(),
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
                          const PrincipalView& view, const RowBlock& rows, const Scores& scores) {
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
    kernels.Gemm(shape.u_type, {low_q_.data(), ld, view.u + t * tile_bytes, kPageTokens,
                                kernels.panel_columns, scores.data + t * kPageTokens, scores.stride,
                                rows.n_rows(), kPageTokens, rank, GemmArgs::Into::kAccumulate});
  }
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    std::fill_n(scores.data + r * scores.stride, block.n_sinks, kHidden);
  }
}

void PrincipalRows::Read(const AttentionGeometry& g, const PrincipalBlock& block,
                         const PrincipalView& view, const Scores& weights, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const PrincipalShape& shape = block.shape;
  const int64_t rank = view.rank, ld = rank + shape.n_mean_rows(), padded = g.head_dim_padded();
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
    if (factors_[r] != 1.0f) kernels.scale(factors_[r], row, ld);
  }
  if (view.value_scales != nullptr) {
    ScaleColumns(view.value_scales, rows.n_rows(), ld, low_out_.data());
  }
  kernels.Gemm(shape.principal_type,
               {low_out_.data(), ld, view.values, padded, kernels.panel_columns, rows.out(0),
                padded, rows.n_rows(), padded, ld, GemmArgs::Into::kAccumulate});
}

void PrincipalRows::Add(const AttentionGeometry& g, const FarBlocks& far, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  std::fill_n(factors_.begin(), rows.n_rows(), 1.0f);
  for (const auto& block : far.blocks) {
    const PrincipalView view = block->View(g, far.layer, far.kv_head);
    const Scores scores{scores_.data(), block->shape.n_tokens};
    Score(g, *block, view, rows, scores);
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      const SoftmaxUpdate update =
          kernels.softmax_update(scores.data + r * scores.stride, scores.stride, &rows.state(r));
      if (update.factor != 1.0f) kernels.scale(update.factor, rows.out(r), g.head_dim_padded());
      sums_[r] = update.sum;
    }
    Read(g, *block, view, scores, rows);
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
    if (view.value_scales != nullptr) {
      ScaleColumns(view.value_scales, rows.n_rows(), ld, low_q_.data());
    }
    kernels.Gemm(block.shape.principal_type,
                 {low_q_.data(), ld, view.values, padded, kernels.panel_columns, rows.out(0),
                  padded, rows.n_rows(), padded, ld, GemmArgs::Into::kAccumulate});
  }
}

void PrincipalRows::JoinFar(int64_t n_far, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  for (int64_t r = 0; r < rows.n_rows(); ++r) {
    SoftmaxState far{kHidden, 0};
    kernels.softmax_update(scores_.data() + r * n_far, n_far, &far);
    SoftmaxState& near = rows.state(r);
    const float top = std::max(near.max, far.max);
    const float near_factor = std::exp(near.max - top);
    kernels.scale(near_factor, rows.out(r), rows.out_stride());
    near = {top, near.sum * near_factor};
    factors_[r] = std::exp(far.max - top);
    shares_[r] = factors_[r] / (near.sum + far.sum * factors_[r]);
  }
}

void PrincipalRows::Gather(const AttentionGeometry& g, const PrincipalShape& shape,
                           absl::Span<const int32_t> tokens) {
  const int64_t key_bytes = shape.KeptKeyBytes(g), value_bytes = shape.KeptValueBytes(g);
  const auto kept = [&](int32_t token) {
    return views_[token / shape.n_tokens].kept + token % shape.n_tokens * (key_bytes + value_bytes);
  };
  for (int32_t token : tokens) Prefetch(kept(token), key_bytes + value_bytes);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* from = kept(tokens[i]);
    if (shape.kept_type == StorageType::kInt8) {
      const int64_t width = DotWidth(g), padded = g.head_dim_padded();
      auto* keys = reinterpret_cast<float*>(chosen_keys_.data());
      auto* values = reinterpret_cast<float*>(chosen_values_.data());
      ReadQuantisedRow(from, width, keys + i * width);
      ReadQuantisedRow(from + key_bytes, padded, values + i * padded);
      continue;
    }
    std::memcpy(chosen_keys_.data() + i * key_bytes, from, key_bytes);
    std::memcpy(chosen_values_.data() + i * value_bytes, from + key_bytes, value_bytes);
  }
}

void PrincipalRows::ReadChosen(const AttentionGeometry& g, const FarBlocks& far, int64_t n_far,
                               int64_t first_row, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  std::fill_n(weights_.begin(), n_far, 0.0f);
  for (int64_t h = first_row; h < first_row + g.group(); ++h) {
    const float* row = scores_.data() + h * n_far;
    for (int64_t i = 0; i < n_far; ++i) weights_[i] += row[i] * shares_[h];
  }
  const int64_t n_sinks = far.blocks[0]->n_sinks;
  chosen_.clear();
  for (int32_t i :
       top_.Select({weights_.data() + n_sinks, static_cast<size_t>(n_far - n_sinks)}, n_refined_)) {
    chosen_.push_back(i + static_cast<int32_t>(n_sinks));
  }
  Gather(g, far.blocks[0]->shape, chosen_);
  const auto n = static_cast<int64_t>(chosen_.size());
  const int64_t ld = RoundUp(n, kSoftmaxStep), padded = g.head_dim_padded();
  std::fill_n(chosen_scores_.begin(), g.group() * ld, 0.0f);
  const StorageType type = ChosenType(far.blocks[0]->shape);
  kernels.DotRows(type, {rows.q(first_row), rows.q_stride(), chosen_keys_.data(),
                         chosen_scores_.data(), ld, g.group(), n, DotWidth(g)});
  for (int64_t h = 0; h < g.group(); ++h) {
    float* exact = chosen_scores_.data() + h * ld;
    std::fill(exact + n, exact + ld, kHidden);
    const int64_t row = first_row + h;
    const float factor = kernels.softmax_update(exact, ld, &rows.state(row)).factor;
    kernels.scale(factor, rows.out(row), padded);
    factors_[row] *= factor;
    for (int32_t i : chosen_) scores_[row * n_far + i] = 0.0f;
  }
  kernels.Gemm(type,
               {chosen_scores_.data(), ld, chosen_values_.data(), padded, kernels.panel_columns,
                rows.out(first_row), padded, g.group(), padded, n, GemmArgs::Into::kAccumulate});
}

void PrincipalRows::AddRefined(const AttentionGeometry& g, const FarBlocks& far, int64_t n_refined,
                               RowBlock& rows) {
  const auto n_blocks = static_cast<int64_t>(far.blocks.size());
  const PrincipalShape& shape = far.blocks[0]->shape;
  const int64_t width = shape.n_tokens, n_far = n_blocks * width;
  n_refined_ = n_refined;
  views_.clear();
  for (const auto& block : far.blocks) views_.push_back(block->View(g, far.layer, far.kv_head));
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (b + 1 < n_blocks) PrefetchBlock(shape, views_[b + 1]);
    Score(g, *far.blocks[b], views_[b], rows, {scores_.data() + b * width, n_far});
  }
  JoinFar(n_far, rows);
  for (int64_t r = 0; r < rows.n_rows(); r += g.group()) ReadChosen(g, far, n_far, r, rows);
  for (int64_t b = 0; b < n_blocks; ++b) {
    const Scores weights{scores_.data() + b * width, n_far};
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      sums_[r] = Sum(weights.data + r * n_far, width);
      rows.state(r).sum += sums_[r] * factors_[r];
    }
    Read(g, *far.blocks[b], views_[b], weights, rows);
  }
}

}  // namespace lowkey
