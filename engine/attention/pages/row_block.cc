#include "engine/attention/pages/row_block.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"

namespace lowkey {
namespace {

// Eight tiles of six rows: queries, scores and outputs of 64 floats a row fill 36 KiB beside a 32
// KiB page in L2. Larger blocks are read by strips of so many rows.
constexpr int64_t kTargetRows = 48;
// The rows of a block share the packing of a page. A matrix unit multiplies so fast that packing
// needs more rows to be worth it.
constexpr int64_t kPageRows = 192;
constexpr int64_t kUnitTargetRows = 192;
constexpr int64_t kUnitPageRows = 768;
// Up to six rows are multiplied by a quantized page's codes; for more rows its numbers are widened
// first.
constexpr int64_t kFewRows = 6;
constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Says whether queries and weights are rounded to bf16 and multiplied by pages in pairs of steps,
// also by a quantized page's numbers, which are rounded too. Many rows pack a page for that.
bool MultipliesPairs(const AttentionGeometry& g) {
  return Kernels().rounds_activations && g.cache_type == StorageType::kBFloat16;
}

// Says whether many rows read pages by attend_pairs.
bool UnitReadsPages(const AttentionGeometry& g) {
  return Kernels().has_matrix_unit && MultipliesPairs(g) && DotWidth(g) <= kMaxAttendDim;
}

}  // namespace

int64_t MaxRowBlockTokens(const AttentionGeometry& g) {
  const int64_t n_rows = Kernels().has_matrix_unit ? kUnitTargetRows : kTargetRows;
  return std::max<int64_t>(1, n_rows / g.group());
}

int64_t MaxPageBlockTokens(const AttentionGeometry& g) {
  // Rows of a sliding window read pages that are before the window of others.
  if (g.sliding_window.has_value() || !MultipliesPairs(g)) return MaxRowBlockTokens(g);
  return std::max<int64_t>(1, (UnitReadsPages(g) ? kUnitPageRows : kPageRows) / g.group());
}

void AppendRowBlocks(const AttentionGeometry& g, int32_t segment_index, const Segment& segment,
                     const RowCuts& cuts, std::vector<RowBlockTask>& tasks) {
  const auto first_task = static_cast<int64_t>(tasks.size());
  for (int64_t row = 0; row < segment.n_rows;) {
    int64_t n = std::min(cuts.max_tokens.value_or(MaxRowBlockTokens(g)), segment.n_rows - row);
    const int64_t position = segment.first_position + row;
    if (cuts.every.has_value()) n = std::min(n, *cuts.every - position % *cuts.every);
    if (cuts.at.has_value() && position < *cuts.at) n = std::min(n, *cuts.at - position);
    for (int64_t head = 0; head < g.n_kv_heads; ++head) {
      tasks.push_back({segment_index, static_cast<int32_t>(head), row, n});
    }
    row += n;
  }
  std::reverse(tasks.begin() + first_task, tasks.end());
}

void RowBlock::Reserve(const AttentionGeometry& g, int64_t n_tokens) {
  const int64_t n_rows = RoundUp(n_tokens * g.group(), kUnitRows);
  q_stride_ = DotWidth(g);
  q_.resize(n_rows * q_stride_);
  out_stride_ = g.head_dim_padded();
  out_.resize(n_rows * out_stride_);
  scores_.resize(n_rows * kPageTokens);
  states_.resize(n_rows);
  folded_out_.resize(out_.size());
  folded_states_.resize(n_rows);
  codes_.resize(kPageTokens * out_stride_);
  numbers_.resize(2 * std::max(kKeyGroups * q_stride_, ValueGroups(g) * kPageTokens));
  widened_.resize(kPageTokens * (g.head_dim + out_stride_));
  bf16_q_.resize(q_.size());
  bf16_weights_.resize(scores_.size());
  key_pairs_.resize(kPageTokens * std::max(out_stride_, q_stride_));
  value_pairs_.resize(key_pairs_.size());
  visible_.resize(n_rows);
}

void RowBlock::Begin(const AttentionGeometry& g, const Segment& segment, const RowBlockTask& task,
                     const LayerRows& rows) {
  geometry_ = g;
  first_position_ = segment.first_position + task.first_row;
  n_tokens_ = task.n_tokens;
  n_rows_ = n_tokens_ * g.group();
  const float scale = 1.0f / std::sqrt(static_cast<float>(g.head_dim));
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t step_row = segment.first_row + task.first_row + r / g.group();
    const int64_t head = task.kv_head * g.group() + r % g.group();
    const float* q = rows.q + step_row * rows.ld_qkv + head * g.head_dim;
    float* to = q_.data() + r * q_stride_;
    for (int64_t j = 0; j < g.head_dim; ++j) to[j] = q[j] * scale;
    std::fill(to + g.head_dim, to + q_stride_, 0.0f);
  }
  if (MultipliesPairs(geometry_)) Kernels().to_bf16(q_.data(), bf16_q_.data(), n_rows_ * q_stride_);
  Restart();
  std::fill_n(folded_out_.begin(), n_rows_ * out_stride_, 0.0f);
  std::fill_n(folded_states_.begin(), n_rows_, SoftmaxState{kHidden, 0});
}

void RowBlock::Restart() {
  std::fill_n(out_.begin(), n_rows_ * out_stride_, 0.0f);
  std::fill_n(states_.begin(), n_rows_, SoftmaxState{kHidden, 0});
}

void RowBlock::Fold() {
  const KernelTable& kernels = Kernels();
  for (int64_t r = 0; r < n_rows_; ++r) {
    SoftmaxState& all = folded_states_[r];
    const SoftmaxState& part = states_[r];
    float* folded = folded_out_.data() + r * out_stride_;
    if (part.max == kHidden) continue;
    if (all.max == kHidden) {
      std::copy_n(out(r), out_stride_, folded);
      all = part;
      continue;
    }
    const float top = std::max(all.max, part.max);
    const float all_factor = std::exp(all.max - top), part_factor = std::exp(part.max - top);
    kernels.scale(all_factor, folded, out_stride_);
    kernels.scale(part_factor, out(r), out_stride_);
    kernels.add(out(r), folded, out_stride_);
    all = {top, all.sum * all_factor + part.sum * part_factor};
  }
  Restart();
}

void RowBlock::SavePart(float* part) const {
  for (int64_t r = 0; r < n_rows_; ++r) {
    const float* row = out_.data() + r * out_stride_;
    part = std::copy(row, row + out_stride_, part);
    *part++ = states_[r].max;
    *part++ = states_[r].sum;
  }
}

void RowBlock::TakePart(const float* part) {
  for (int64_t r = 0; r < n_rows_; ++r) {
    std::copy(part, part + out_stride_, out(r));
    part += out_stride_;
    states_[r] = {part[0], part[1]};
    part += 2;
  }
}

PageSlots RowBlock::VisibleTo(int64_t row, int64_t page, int64_t end) const {
  const int64_t position = PositionOf(row), tile_first = page * kPageTokens;
  int64_t lo = 0;
  if (geometry_.sliding_window.has_value()) {
    lo = std::max(lo, position - *geometry_.sliding_window + 1);
  }
  const int64_t hi = std::min(end, position + 1);
  const int64_t begin = std::clamp<int64_t>(lo - tile_first, 0, kPageTokens);
  return {begin, std::clamp<int64_t>(hi - tile_first, begin, kPageTokens)};
}

bool RowBlock::SeesAll(int64_t page, int64_t end) const {
  const int64_t tile_end = (page + 1) * kPageTokens;
  return end >= tile_end && first_position_ >= tile_end - 1 &&
         !geometry_.sliding_window.has_value();
}

int64_t RowBlock::VisibleTokens(int64_t row, int64_t page, int64_t end) const {
  const int64_t tile_first = page * kPageTokens;
  return std::min({end, PositionOf(row) + 1, tile_first + kPageTokens}) - tile_first;
}

void RowBlock::Weigh(const Strip& strip, int64_t page, int64_t end, bool rounds) {
  const KernelTable& kernels = Kernels();
  if (!SeesAll(page, end)) {
    for (int64_t i = 0; i < strip.n; ++i) {
      const PageSlots visible = VisibleTo(strip.first + i, page, end);
      float* scores = scores_.data() + i * kPageTokens;
      std::fill(scores, scores + visible.begin, kHidden);
      std::fill(scores + visible.end, scores + kPageTokens, kHidden);
    }
  }

  if (rounds) {
    return kernels.weigh_rows({scores_.data(), bf16_weights_.data(), &states_[strip.first],
                               out(strip.first), out_stride_, strip.n});
  }
  for (int64_t i = 0; i < strip.n; ++i) {
    const int64_t r = strip.first + i;
    const SoftmaxUpdate update =
        kernels.softmax_update(scores_.data() + i * kPageTokens, kPageTokens, &states_[r]);
    if (update.factor != 1.0f) kernels.scale(update.factor, out(r), out_stride_);
  }
}

template <class MultiplyKeys, class MultiplyValues>
void RowBlock::AddStrips(int64_t page, int64_t end, const MultiplyKeys& multiply_keys,
                         const MultiplyValues& multiply_values) {
  const bool pairs = MultipliesPairs(geometry_);
  const int64_t panel = Kernels().panel_columns;
  for (Strip strip; strip.first < n_rows_; strip.first += strip.n) {
    strip.n = std::min(kTargetRows, n_rows_ - strip.first);
    // Whole panels up to the last token that a row sees; Weigh hides the rest.
    const int64_t n_visible = VisibleTokens(strip.first + strip.n - 1, page, end);
    if (n_visible <= 0) continue;
    const int64_t first_q = strip.first * q_stride_;
    GemmArgs scores;
    scores.a = pairs ? static_cast<const void*>(bf16_q_.data() + first_q) : q_.data() + first_q;
    scores.lda = q_stride_;
    scores.c = scores_.data();
    scores.ldc = kPageTokens;
    scores.n_rows = strip.n;
    scores.n_cols = RoundUp(n_visible, panel);
    scores.k = geometry_.head_dim;
    multiply_keys(scores);
    Weigh(strip, page, end, pairs);
    GemmArgs values;
    values.a = pairs ? static_cast<const void*>(bf16_weights_.data()) : scores_.data();
    values.lda = kPageTokens;
    values.c = out(strip.first);
    values.ldc = values.n_cols = out_stride_;
    values.n_rows = strip.n;
    // Tokens that no row of the block sees may hold another sequence's data: 0 times NaN is NaN.
    values.k = n_visible;
    values.into = GemmArgs::Into::kAccumulate;
    multiply_values(values);
  }
}

void RowBlock::AddPacked(int64_t page, int64_t end, int64_t value_steps) {
  const KernelTable& kernels = Kernels();
  const auto multiply = [&](GemmArgs product, const uint16_t* pairs, int64_t n_steps) {
    product.b = pairs;
    product.k = RoundUp(product.k, kPairSteps);
    product.b_panel_stride = RoundUp(n_steps, kPairSteps) * kernels.panel_columns;
    kernels.gemm_bf16_pairs(product, nullptr);
  };
  AddStrips(
      page, end, [&](const GemmArgs& p) { multiply(p, key_pairs_.data(), geometry_.head_dim); },
      [&](const GemmArgs& p) { multiply(p, value_pairs_.data(), value_steps); });
}

bool RowBlock::UsesUnit() const { return UnitReadsPages(geometry_) && n_rows_ > kFewRows; }

void RowBlock::AttendPairs(int64_t page, int64_t end) {
  const bool sees_all = SeesAll(page, end);
  if (!sees_all) {
    for (int64_t r = 0; r < n_rows_; ++r) visible_[r] = VisibleTo(r, page, end);
  }
  // Rows before the page see nothing of it: whole tiles of them are left out.
  const int64_t before = std::max<int64_t>(0, page * kPageTokens - first_position_);
  const int64_t first = before * geometry_.group() / kUnitRows * kUnitRows;
  Kernels().attend_pairs({bf16_q_.data() + first * q_stride_, q_stride_, key_pairs_.data(),
                          value_pairs_.data(), sees_all ? nullptr : visible_.data() + first,
                          states_.data() + first, out_.data() + first * out_stride_,
                          n_rows_ - first});
}

void RowBlock::AddPage(const KvTile& tile, int64_t page, int64_t end) {
  const KernelTable& kernels = Kernels();
  const int64_t panel = kernels.panel_columns, padded = out_stride_;
  if (MultipliesPairs(geometry_) && n_rows_ > kFewRows) {
    const int64_t n_visible = VisibleTokens(n_rows_ - 1, page, end);
    kernels.pack_pairs({reinterpret_cast<const uint16_t*>(tile.keys), kPageTokens,
                        geometry_.head_dim, kPageTokens, key_pairs_.data()});
    kernels.pack_pairs({reinterpret_cast<const uint16_t*>(tile.values), padded, n_visible, padded,
                        value_pairs_.data(), UsesUnit() ? kPageTokens : kPairSteps});
    return UsesUnit() ? AttendPairs(page, end) : AddPacked(page, end, n_visible);
  }
  const auto multiply = [&](GemmArgs product, const std::byte* b, int64_t row_stride,
                            const std::byte* next) {
    product.b = b;
    product.b_row_stride = row_stride;
    product.b_panel_stride = panel;
    if (MultipliesPairs(geometry_)) return kernels.gemm_bf16_row_pairs(product, next);
    kernels.Gemm(geometry_.cache_type, product, next);
  };
  const std::byte* next_values =
      tile.next == nullptr ? nullptr : tile.next + (tile.values - tile.keys);
  AddStrips(
      page, end, [&](const GemmArgs& p) { multiply(p, tile.keys, kPageTokens, tile.next); },
      [&](const GemmArgs& p) { multiply(p, tile.values, padded, next_values); });
}

void RowBlock::AddColumns(const ColumnTile& tile, int64_t page, int64_t end) {
  const KernelTable& kernels = Kernels();
  const int64_t panel = kernels.panel_columns, padded = out_stride_;
  kernels.Gemm(tile.key_type,
               {q_.data(), q_stride_, tile.keys, kPageTokens, panel, scores_.data(), kPageTokens,
                n_rows_, RoundUp(VisibleTokens(n_rows_ - 1, page, end), panel), geometry_.head_dim},
               tile.next_keys);
  Weigh({0, n_rows_}, page, end, /*rounds=*/false);
  kernels.DotRows(geometry_.cache_type, {scores_.data(), kPageTokens, tile.values, out_.data(),
                                         padded, n_rows_, geometry_.head_dim, kPageTokens});
}

ColumnGroups RowBlock::Widen(const TileHalf& half) {
  const int64_t n = half.n_groups * half.stride;
  float *scales = numbers_.data(), *middles = scales + n;
  for (int64_t i = 0; i < n; ++i) scales[i] = ToFloat(BFloat16{half.scales[i]});
  for (int64_t i = 0; i < n; ++i) middles[i] = ToFloat(BFloat16{half.middles[i]});
  return {half.codes, half.row_stride, half.group_stride, scales, middles, half.stride};
}

const int8_t* RowBlock::Codes(const QuantizedTile& tile, const std::byte* codes, int64_t n) {
  const int bits = CodeBits(tile.storage);
  if (bits == 8) return reinterpret_cast<const int8_t*>(codes);
  Kernels().unpack_codes(bits, reinterpret_cast<const uint8_t*>(codes), codes_.data(), n);
  return codes_.data();
}

RowBlock::TileHalf RowBlock::Keys(const QuantizedTile& tile) {
  const int64_t d = geometry_.head_dim;
  return {Codes(tile, tile.keys, kPageTokens * d),
          kGroup,
          d * kGroup,
          tile.key_scales,
          tile.key_middles,
          kKeyGroups,
          q_stride_};
}

RowBlock::TileHalf RowBlock::Values(const QuantizedTile& tile) {
  return {Codes(tile, tile.values, kPageTokens * out_stride_),
          out_stride_,
          kGroup,
          tile.value_scales,
          tile.value_middles,
          ValueGroups(geometry_),
          kPageTokens};
}

void RowBlock::AddQuantized(const QuantizedTile& tile, const QuantizedTile& next, int64_t page) {
  const KernelTable& kernels = Kernels();
  const int64_t d = geometry_.head_dim, padded = out_stride_, end = first_position_;
  if (n_rows_ <= kFewRows) {
    const auto multiply = [&](const GemmArgs& product, const TileHalf& half, const ReadNext& read) {
      const ColumnGroups groups = Widen(half);
      if (MultipliesPairs(geometry_)) return kernels.grouped_gemm_pairs(product, groups, read);
      kernels.grouped_gemm(product, groups, read);
    };
    return AddStrips(
        page, end,
        [&](const GemmArgs& p) {
          multiply(p, Keys(tile), {next.keys, next.values - next.keys});
        },
        [&](const GemmArgs& p) {
          multiply(p, Values(tile), {next.values, next.keys + next.size_bytes - next.values});
        });
  }
  if (MultipliesPairs(geometry_)) {
    kernels.widen_group_pairs(Widen(Keys(tile)), d, kPageTokens, key_pairs_.data());
    kernels.widen_group_pairs(Widen(Values(tile)), kPageTokens, padded, value_pairs_.data());
    return UsesUnit() ? AttendPairs(page, end) : AddPacked(page, end, kPageTokens);
  }
  float *keys = widened_.data(), *values = keys + d * kPageTokens;
  kernels.widen_groups(Widen(Keys(tile)), d, kPageTokens, keys);
  kernels.widen_groups(Widen(Values(tile)), kPageTokens, padded, values);
  const auto multiply = [&](GemmArgs product, const float* b, int64_t row_stride) {
    product.b = b;
    product.b_row_stride = row_stride;
    product.b_panel_stride = kernels.panel_columns;
    kernels.Gemm(StorageType::kFloat32, product);
  };
  AddStrips(
      page, end, [&](const GemmArgs& p) { multiply(p, keys, kPageTokens); },
      [&](const GemmArgs& p) { multiply(p, values, padded); });
}

void RowBlock::Finish(const Segment& segment, const RowBlockTask& task, const LayerRows& rows) {
  const AttentionGeometry& g = geometry_;
  Fold();
  for (int64_t r = 0; r < n_rows_; ++r) {
    const int64_t step_row = segment.first_row + task.first_row + r / g.group();
    const int64_t head = task.kv_head * g.group() + r % g.group();
    float* out = rows.out + step_row * rows.ld_out + head * g.head_dim;
    const float* acc = folded_out_.data() + r * out_stride_;
    const float inverse = 1.0f / folded_states_[r].sum;
    // Adding 0 makes a zero positive: a matrix unit adds zeros for tokens that no row sees.
    for (int64_t j = 0; j < g.head_dim; ++j) out[j] = (acc[j] + 0.0f) * inverse;
  }
}

}  // namespace lowkey
