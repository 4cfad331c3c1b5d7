#include "engine/attention/atp/calibrated/indexed_rows.h"

#include <algorithm>
#include <cmath>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/prefetch.h"

namespace lowkey {
namespace {

// Computes the rows' products with the components of the keys, and rounds them to 8 bits.
void Project(const TokenIndex::Half& keys, const RowBlock& rows, IndexedRows::Scratch& s) {
  // Adding this to a number rounds it to the nearest integer, ties to even.
  constexpr float kMost = 127.0f, kRounds = 0x1.8p23f;
  const int64_t n = keys.n(), n_rows = rows.n_rows();
  std::fill_n(s.low.begin(), n_rows * n, 0.0f);
  Kernels().DotRows(StorageType::kFloat32, {rows.q(0), rows.q_stride(), keys.rows.data(),
                                            s.low.data(), n, n_rows, n, keys.width});
  for (int64_t r = 0; r < n_rows; ++r) {
    const float* row = s.low.data() + r * n;
    float largest = 0;
    for (int64_t j = 0; j < n; ++j) largest = std::max(largest, std::fabs(row[j]));
    const float factor = kMost / largest;
    const bool is_sound = factor > 0 && std::isfinite(factor);
    s.scales[r] = is_sound ? largest / kMost : 0.0f;
    int8_t* rounded = s.rounded.data() + r * n;
    int32_t sum = 0;
    for (int64_t j = 0; j < n; ++j) {
      const float x = (is_sound ? row[j] * factor : 0.0f) + kRounds;
      rounded[j] = static_cast<int8_t>(static_cast<int32_t>(x - kRounds));
      sum += rounded[j];
    }
    s.sums[r] = sum;
  }
}

// The pages of a part, and those after them that memory is asked for meanwhile.
class PartPages {
 public:
  static constexpr int64_t kAhead = 4;

  PartPages(const IndexedBlocks& blocks, int64_t part) : begin_(part * IndexedRows::kPartPages) {
    const int64_t n_pages = blocks.far.n_tokens() / kPageTokens;
    n_ = std::min(n_pages - begin_, IndexedRows::kPartPages);
    const int64_t n_known = std::min(n_pages - begin_, IndexedRows::kPartPages + kAhead);
    for (int64_t i = 0; i < n_known; ++i) pages_[i] = blocks.page(begin_ + i);
  }
  int64_t begin() const { return begin_; }
  int64_t end() const { return begin_ + n_; }
  const TokenIndex::Page& operator[](int64_t number) const { return pages_[number - begin_]; }

 private:
  int64_t begin_ = 0, n_ = 0;
  TokenIndex::Page pages_[IndexedRows::kPartPages + kAhead];  // null where there is none
};

void PrefetchKeys(const TokenIndex::Page& page) { Prefetch(page.keys, page.values - page.keys); }
void PrefetchValues(const TokenIndex::Page& page) { Prefetch(page.values, page.end - page.values); }

}  // namespace

TokenIndex::Page IndexedBlocks::page(int64_t number) const {
  const int64_t block_pages = shape().n_tokens / kPageTokens;
  const PrincipalBlock& block = *far.blocks[number / block_pages];
  return TokenIndex::PageAt(geometry, block.View(geometry, far.layer, far.kv_head).index +
                                          number % block_pages * TokenIndex::PageBytes(geometry));
}

int64_t IndexedRows::NumParts(int64_t n_far_tokens) {
  constexpr int64_t kPartTokens = kPartPages * kPageTokens;
  return (n_far_tokens + kPartTokens - 1) / kPartTokens;
}

void IndexedRows::Scratch::Reserve(const AttentionGeometry& g, const TokenIndex& index,
                                   const FarTokens::Size& size) {
  const int64_t n = TokenIndex::MaxKeyComponents(g);
  Grow(low, size.n_rows * n);
  Grow(rounded, size.n_rows * n);
  Grow(sums, size.n_rows);
  Grow(scales, size.n_rows);
  Grow(mean_scratch, index.turned_means().ScratchSize(size.n_rows));
}

void IndexedRows::Reserve(const AttentionGeometry& g, const PrincipalShape& shape,
                          const FarTokens::Size& size) {
  far_.Reserve(g, shape, size);
  if (shape.keeps_rest) {
    rest_.Reserve(g, size, NumParts(size.n_far_tokens));
    Grow(mean_scores_, size.n_rows * size.n_far_tokens);
  }
  const int64_t n_parts = NumParts(size.n_far_tokens);
  Grow(counted_, n_parts * size.n_rows / g.group());
  Grow(sums_, n_parts * size.n_rows * (TokenIndex::MaxValueComponents(g) + 1));
}

void IndexedRows::ScorePart(const IndexedBlocks& blocks, int64_t part, const RowBlock& rows,
                            Scratch& s) {
  const TokenIndex::Half& keys = blocks.keys();
  const int64_t n_far = blocks.far.n_tokens(), n_rows = rows.n_rows();
  const PartPages pages(blocks, part);
  for (int64_t i = 0; i < PartPages::kAhead; ++i) PrefetchKeys(pages[pages.begin() + i]);
  Project(keys, rows, s);
  const int64_t first = pages.begin() * kPageTokens;
  blocks.index.turned_means().Score({rows.q(0), rows.q_stride(), n_rows, keys.mean(), pages.begin(),
                                     pages.end(), far_.scores() + first, n_far},
                                    blocks.pages, s.mean_scratch);
  for (int64_t r = 0; blocks.shape().keeps_rest && r < n_rows; ++r) {
    const int64_t at = r * n_far + first, n = pages.end() * kPageTokens - first;
    std::copy_n(far_.scores() + at, n, mean_scores_.data() + at);
  }
  for (int64_t p = pages.begin(); p < pages.end(); ++p) {
    PrefetchKeys(pages[p + PartPages::kAhead]);
    const TokenIndex::Page& page = pages[p];
    Kernels().score_levels({&blocks.index.book(), page.keys, page.key_gains, keys.bands,
                            s.rounded.data(), s.sums.data(), s.scales.data(), n_rows,
                            far_.scores() + p * kPageTokens, n_far});
  }
  for (int64_t r = 0; part == 0 && r < n_rows; ++r) {
    std::fill_n(far_.scores() + r * n_far, blocks.far.blocks[0]->n_sinks, kHiddenScore);
  }
}

void IndexedRows::Choose(const IndexedBlocks& blocks, RowBlock& rows) {
  far_.Join(blocks.far.n_tokens(), rows);
  far_.Choose(blocks.geometry, blocks.far, {blocks.n_refined, kLeastShare}, rows.n_rows());
  if (blocks.shape().keeps_rest) rest_.Begin(blocks, rows);
}

uint32_t IndexedRows::AddWeights(const IndexedBlocks& blocks, int64_t part, int64_t first_row,
                                 float* sums, int64_t ld) const {
  const int64_t n_far = blocks.far.n_tokens(), n_pages = n_far / kPageTokens;
  const int64_t begin = part * kPartPages, end = std::min(begin + kPartPages, n_pages);
  const float least = kLeastPageShare / static_cast<float>(n_pages);
  static_assert(kPartPages <= 32);
  uint32_t counted = 0;
  for (int64_t r = first_row; r < first_row + blocks.geometry.group(); ++r) {
    for (int64_t p = begin; p < end; ++p) {
      const float sum = SumInChains(far_.scores() + r * n_far + p * kPageTokens, kPageTokens);
      sums[r * ld] += sum;
      const bool counts = !(sum * far_.share(r) < least);  // also when it is NaN
      counted |= uint32_t{counts} << (p - begin);
    }
  }
  return counted;
}

void IndexedRows::ReadPart(const IndexedBlocks& blocks, int64_t part, int64_t n_rows) {
  const KernelTable& kernels = Kernels();
  const AttentionGeometry& g = blocks.geometry;
  const int64_t n = blocks.values().n(), ld = n + 1, n_far = blocks.far.n_tokens();
  const int64_t group = g.group();
  const PartPages pages(blocks, part);
  for (int64_t i = 0; i < PartPages::kAhead; ++i) PrefetchValues(pages[pages.begin() + i]);
  float* sums = sums_.data() + part * n_rows * ld;
  std::fill_n(sums, n_rows * ld, 0.0f);
  if (blocks.shape().keeps_rest) {
    const RestRows::Part of_rest = {part, pages.begin() * kPageTokens, pages.end() * kPageTokens,
                                    mean_scores_.data()};
    rest_.ReadPart(blocks, of_rest, n_rows, far_, sums);
  }
  uint32_t* counted = counted_.data() + part * n_rows / group;
  uint32_t counted_by_any = 0;
  for (int64_t token = 0; token < n_rows / group; ++token) {
    counted[token] = AddWeights(blocks, part, token * group, sums + n, ld);
    counted_by_any |= counted[token];
  }
  const auto is_in = [&](uint32_t set, int64_t page) { return set >> (page - pages.begin()) & 1; };
  for (int64_t p = pages.begin(); p < pages.end(); ++p) {
    const int64_t ahead = p + PartPages::kAhead;
    if (ahead >= pages.end() || is_in(counted_by_any, ahead)) PrefetchValues(pages[ahead]);
    const TokenIndex::Page& page = pages[p];
    if (!blocks.shape().keeps_rest) {
      far_.PrefetchChosen(g, blocks.shape(), p, n_far / kPageTokens);
    }
    for (int64_t row = 0, end = 0; row < n_rows; row = end + group) {
      for (end = row; end < n_rows && is_in(counted[end / group], p);) end += group;
      if (end == row) continue;
      kernels.read_levels({&blocks.index.book(), page.values, page.value_gains,
                           blocks.values().bands, far_.scores() + row * n_far + p * kPageTokens,
                           n_far, end - row, sums + row * ld, ld});
    }
  }
  if (!blocks.shape().keeps_rest) far_.GatherChosen(g, blocks.shape(), part, NumParts(n_far));
}

void IndexedRows::Finish(const IndexedBlocks& blocks, RowBlock& rows) {
  const KernelTable& kernels = Kernels();
  const TokenIndex::Half& values = blocks.values();
  const int64_t ld = values.n() + 1, n_rows = rows.n_rows();
  float* sums = sums_.data();
  for (int64_t part = 1; part < NumParts(blocks.far.n_tokens()); ++part) {
    kernels.add(sums + part * n_rows * ld, sums, n_rows * ld);
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    kernels.scale(far_.factor(r), sums + r * ld, ld);
    rows.state(r).sum += sums[r * ld + values.n()];
  }
  kernels.Gemm(StorageType::kFloat32,
               {sums, ld, values.rows.data(), values.width, kernels.panel_columns, rows.out(0),
                rows.out_stride(), n_rows, values.width, ld, GemmArgs::Into::kAccumulate});
  if (blocks.shape().keeps_rest) {
    rest_.Finish(blocks, NumParts(blocks.far.n_tokens()), far_, rows);
  } else {
    far_.ReadChosen(blocks.geometry, blocks.shape(), rows);
  }
}

void IndexedRows::Add(const IndexedBlocks& blocks, RowBlock& rows, Scratch& scratch) {
  const int64_t n_parts = NumParts(blocks.far.n_tokens());
  for (int64_t part = 0; part < n_parts; ++part) ScorePart(blocks, part, rows, scratch);
  Choose(blocks, rows);
  for (int64_t part = 0; part < n_parts; ++part) ReadPart(blocks, part, rows.n_rows());
  Finish(blocks, rows);
}

}  // namespace lowkey
