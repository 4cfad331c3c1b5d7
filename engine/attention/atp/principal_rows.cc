#include "engine/attention/atp/principal_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
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

// Sums in 16 chains too; n is a multiple of 16.
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

// Returns the type that chosen tokens are gathered in: quantized ones are widened.
StorageType ChosenType(const PrincipalShape& shape) {
  return shape.kept_type == StorageType::kInt8 ? StorageType::kFloat32 : shape.kept_type;
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
  chosen_.reserve(size.n_rows / g.group() * size.n_refined);
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
    std::fill_n(scores.data + r * scores.stride, block.n_sinks, kHidden);
  }
}

void PrincipalRows::Read(const PrincipalBlock& block, const PrincipalView& view,
                         const Scores& weights, RowBlock& rows) {
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
    if (factors_[r] != 1.0f) kernels.scale(factors_[r], row, ld);
  }
  AddValues(shape, view, low_out_.data(), rows);
}

void PrincipalRows::Add(const AttentionGeometry& g, const FarBlocks& far, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  std::fill_n(factors_.begin(), rows.n_rows(), 1.0f);
  for (const auto& block : far.blocks) {
    const PrincipalView view = block->View(g, far.layer, far.kv_head);
    const Scores scores{scores_.data(), block->shape.n_tokens};
    Score(g, *block, view, view, rows, scores);
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      const SoftmaxUpdate update =
          kernels.softmax_update(scores.data + r * scores.stride, scores.stride, &rows.state(r));
      if (update.factor != 1.0f) kernels.scale(update.factor, rows.out(r), g.head_dim_padded());
      sums_[r] = update.sum;
    }
    Read(*block, view, scores, rows);
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

void PrincipalRows::Choose(int64_t n_far, int64_t n_sinks, int64_t first_row, int64_t n_refined,
                           int64_t group) {
  // A single query head's weights are used as they are; its shares would keep their order.
  const float* weights = scores_.data() + first_row * n_far;
  if (group > 1) {
    Kernels().Gemm(StorageType::kFloat32,
                   {shares_.data() + first_row, group, weights, n_far, Kernels().panel_columns,
                    weights_.data(), n_far, 1, n_far, group});
    weights = weights_.data();
  }
  const absl::Span<const float> visible(weights + n_sinks, static_cast<size_t>(n_far - n_sinks));
  for (int32_t i : top_.Select(visible, n_refined)) {
    const int32_t token = i + static_cast<int32_t>(n_sinks);
    chosen_.push_back(token);
    for (int64_t h = 0; h < group; ++h) scores_[(first_row + h) * n_far + token] = 0.0f;
  }
}

const std::byte* PrincipalRows::Kept(const PrincipalShape& shape, int64_t token_bytes,
                                     int32_t token) const {
  return views_[token / shape.n_tokens].kept + token % shape.n_tokens * token_bytes;
}

void PrincipalRows::Gather(const AttentionGeometry& g, const PrincipalShape& shape,
                           absl::Span<const int32_t> tokens) {
  const int64_t key_bytes = shape.KeptKeyBytes(g), value_bytes = shape.KeptValueBytes(g);
  const int64_t width = DotWidth(g), padded = g.head_dim_padded();
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::byte* from = Kept(shape, key_bytes + value_bytes, tokens[i]);
    if (shape.kept_type == StorageType::kInt8) {
      auto* keys = reinterpret_cast<float*>(chosen_keys_.data());
      auto* values = reinterpret_cast<float*>(chosen_values_.data());
      ReadQuantizedRow(from, width, keys + i * width);
      ReadQuantizedRow(from + key_bytes, padded, values + i * padded);
      continue;
    }
    std::memcpy(chosen_keys_.data() + i * key_bytes, from, key_bytes);
    std::memcpy(chosen_values_.data() + i * value_bytes, from + key_bytes, value_bytes);
  }
}

void PrincipalRows::ReadChosen(const AttentionGeometry& g, const PrincipalShape& shape,
                               absl::Span<const int32_t> tokens, int64_t first_row,
                               RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  Gather(g, shape, tokens);
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t ld = RoundUp(n, kSoftmaxStep), padded = g.head_dim_padded();
  std::fill_n(chosen_scores_.begin(), g.group() * ld, 0.0f);
  const StorageType type = ChosenType(shape);
  kernels.DotRows(type, {rows.q(first_row), rows.q_stride(), chosen_keys_.data(),
                         chosen_scores_.data(), ld, g.group(), n, DotWidth(g)});
  for (int64_t h = 0; h < g.group(); ++h) {
    float* exact = chosen_scores_.data() + h * ld;
    std::fill(exact + n, exact + ld, kHidden);
    const float factor = kernels.softmax_update(exact, ld, &rows.state(first_row + h)).factor;
    kernels.scale(factor, rows.out(first_row + h), padded);
  }
  kernels.Gemm(type,
               {chosen_scores_.data(), ld, chosen_values_.data(), padded, kernels.panel_columns,
                rows.out(first_row), padded, g.group(), padded, n, GemmArgs::Into::kAccumulate});
}

void PrincipalRows::ReadFar(const AttentionGeometry& g, const FarBlocks& far, int64_t n_first,
                            RowBlock& rows) {
  const auto n_blocks = static_cast<int64_t>(far.blocks.size());
  const PrincipalShape& shape = far.blocks[0]->shape;
  const int64_t width = shape.n_tokens, n_far = n_blocks * width;
  const int64_t token_bytes = shape.KeptKeyBytes(g) + shape.KeptValueBytes(g);
  for (int64_t b = 0; b < n_blocks; ++b) {
    // Memory fetches the next block's values and some of the chosen tokens during the product.
    const PrincipalView& next = views_[std::min(b + 1, n_blocks - 1)];
    Prefetch(next.values, next.values - next.keys);
    for (int64_t i = n_first * b / n_blocks; i < n_first * (b + 1) / n_blocks; ++i) {
      Prefetch(Kept(shape, token_bytes, chosen_[i]), token_bytes);
    }
    const Scores weights{scores_.data() + b * width, n_far};
    for (int64_t r = 0; r < rows.n_rows(); ++r) {
      sums_[r] = Sum(weights.data + r * n_far, width);
      rows.state(r).sum += sums_[r] * factors_[r];
    }
    Read(*far.blocks[b], views_[b], weights, rows);
  }
}

void PrincipalRows::AddRefined(const AttentionGeometry& g, const FarBlocks& far, int64_t n_refined,
                               RowBlock& rows) {
  const auto n_blocks = static_cast<int64_t>(far.blocks.size());
  const PrincipalShape& shape = far.blocks[0]->shape;
  const int64_t width = shape.n_tokens, n_far = n_blocks * width;
  const int64_t n_sinks = far.blocks[0]->n_sinks;
  views_.clear();
  for (const auto& block : far.blocks) views_.push_back(block->View(g, far.layer, far.kv_head));
  for (int64_t b = 0; b < n_blocks; ++b) {
    const PrincipalView& next = views_[std::min(b + 1, n_blocks - 1)];
    Prefetch(next.keys, next.values - next.keys);
    Score(g, *far.blocks[b], views_[b], next, rows, {scores_.data() + b * width, n_far});
  }
  JoinFar(n_far, rows);
  chosen_.clear();
  for (int64_t r = 0; r < rows.n_rows(); r += g.group()) {
    Choose(n_far, n_sinks, r, n_refined, g.group());
  }
  const int64_t n = std::min(n_refined, n_far - n_sinks);
  ReadFar(g, far, n, rows);
  for (int64_t r = 0; r < rows.n_rows(); r += g.group()) {
    ReadChosen(g, shape, absl::MakeConstSpan(chosen_).subspan(r / g.group() * n, n), r, rows);
  }
}

}  // namespace lowkey
