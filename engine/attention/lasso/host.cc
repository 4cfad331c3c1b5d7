#include "engine/attention/lasso/host.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "engine/attention/pages/column_pages.h"
#include "engine/base/mix_bits.h"
#include "engine/base/status_macros.h"
#include "engine/lowrank/symmetric_eigen.h"

namespace lowkey {
namespace {

// Eigenvalues of V^T V (V^T V + rho I) below this share of the largest count as zero.
constexpr double kRankTolerance = 1e-10;

// Returns a number in (0, 1) that depends on `index` alone.
double Uniform(uint64_t index) {
  return (static_cast<double>(MixBits(index * kGoldenStep) >> 11) + 0.5) * 0x1p-53;
}

// Returns a standard normal number (Box-Muller).
float Normal(uint64_t index) {
  return static_cast<float>(std::sqrt(-2 * std::log(Uniform(2 * index + 1))) *
                            std::cos(2 * std::numbers::pi * Uniform(2 * index + 2)));
}

std::vector<float> FixedTiles(int64_t n_tokens, int64_t head_dim) {
  std::vector<float> tiles(PagesFor(n_tokens) * head_dim * kPageTokens);
  for (int64_t t = 0; t < n_tokens; ++t) {
    float* column = tiles.data() + t / kPageTokens * head_dim * kPageTokens + t % kPageTokens;
    for (int64_t j = 0; j < head_dim; ++j) {
      column[j * kPageTokens] = Normal(static_cast<uint64_t>(t * head_dim + j));
    }
  }
  return tiles;
}

}  // namespace

HostLasso::HostLasso(const AttentionContext& context)
    : context_(context),
      geometry_(context.geometry),
      options_(context.weights->lasso),
      tile_bytes_(ColumnTileBytes(geometry_)),
      fixed_(FixedTiles(options_.extra_tokens, geometry_.head_dim)),
      scratch_(context.pool->n_threads()) {
  const int64_t d = geometry_.head_dim;
  for (Scratch& s : scratch_) {
    s.target.resize(d);
    s.sums.resize(d);
    s.vectors.resize(d * d);
    s.rotated.resize(d);
  }
}

int64_t HostLasso::GramBytes() const {
  return geometry_.n_layers * geometry_.n_heads * geometry_.head_dim * geometry_.head_dim *
         static_cast<int64_t>(sizeof(double));
}

int64_t HostLasso::BoundBytes(const AttentionOptions&, const SequenceBound& bound) const {
  return PagesFor(bound.n_tokens) * PageBytes() + GramBytes();
}

AttentionWork HostLasso::Work(const AttentionOptions&, int64_t n_tokens) const {
  const auto d = static_cast<double>(geometry_.head_dim);
  const auto n = static_cast<double>(n_tokens + options_.extra_tokens);
  const auto heads = static_cast<double>(geometry_.n_layers * geometry_.n_heads);
  const double eigen = 9 * d * d * d;  // tridiagonalization, QL and their rotations
  AttentionWork work;
  work.decode = heads * (2 * (options_.iterations + 1) * n * d + eigen);
  work.prefill = n / 2 * (work.decode + heads * eigen);
  return work;
}

std::optional<SequenceCache> HostLasso::Prefix(const SequenceCache& sequence, int64_t n_computed,
                                               int64_t n_tokens) const {
  if (n_computed != n_tokens) return std::nullopt;
  const auto& state = sequence.state.As<LassoState>();
  auto pages = FirstPages(state.input_pages, 0, n_tokens / kPageTokens);
  if (!pages.has_value()) return std::nullopt;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  prefix.state.As<LassoState>() = {*std::move(pages), state.gram};
  return prefix;
}

double* HostLasso::Gram(const Place& at) const {
  const int64_t d = geometry_.head_dim;
  return reinterpret_cast<double*>(at.sequence->state.As<LassoState>().gram->data()) +
         (at.layer * geometry_.n_heads + at.head) * d * d;
}

std::byte* HostLasso::Tile(const Place& at, int64_t page) const {
  return at.sequence->state.As<LassoState>().input_pages[page]->data() +
         (at.layer * geometry_.n_heads + at.head) * tile_bytes_;
}

std::pair<const void*, StorageType> HostLasso::SourceTile(const Place& at, int64_t page,
                                                          int64_t n_pages) const {
  if (page < n_pages) return {Tile(at, page), geometry_.cache_type};
  return {fixed_.data() + (page - n_pages) * geometry_.head_dim * kPageTokens,
          StorageType::kFloat32};
}

absl::Status HostLasso::TakeGram(SequenceCache& sequence) {
  std::shared_ptr<Slab>& gram = sequence.state.As<LassoState>().gram;
  const bool is_new = gram == nullptr;
  LK_RETURN_IF_ERROR(context_.cache->MakeOwn(GramBytes(), gram));
  if (!is_new) return absl::OkStatus();
  const int64_t d = geometry_.head_dim;
  std::vector<float> row(d);
  for (int64_t t = 0; t < options_.extra_tokens; ++t) {
    const float* column = fixed_.data() + t / kPageTokens * d * kPageTokens + t % kPageTokens;
    for (int64_t j = 0; j < d; ++j) row[j] = column[j * kPageTokens];
    for (int64_t head = 0; head < geometry_.n_layers * geometry_.n_heads; ++head) {
      AddToGram(row, Gram({&sequence, 0, head}));
    }
  }
  return absl::OkStatus();
}

absl::Status HostLasso::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  int64_t n_pages = 0;
  for (const Segment& s : segments) {
    LK_RETURN_IF_ERROR(TakeSlabPages(s, PageBytes(), *context_.cache,
                                     s.sequence->state.As<LassoState>().input_pages));
    LK_RETURN_IF_ERROR(TakeGram(*s.sequence));
    n_pages = std::max(n_pages, PagesFor(s.first_position + s.n_rows));
  }
  const int64_t width = (n_pages + PagesFor(options_.extra_tokens)) * kPageTokens;
  for (Scratch& s : scratch_) {
    for (std::vector<float>* x : {&s.b0, &s.b, &s.y, &s.c, &s.z, &s.w}) {
      if (static_cast<int64_t>(x->size()) < width) x->resize(width);
    }
  }
  return absl::OkStatus();
}

void HostLasso::AddToGram(const std::vector<float>& row, double* gram) const {
  const int64_t d = geometry_.head_dim;
  for (int64_t i = 0; i < d; ++i) {
    for (int64_t j = 0; j < d; ++j) gram[i * d + j] += static_cast<double>(row[i]) * row[j];
  }
}

void HostLasso::Gather(const Place& at, int64_t n_pages, const std::vector<float>& x,
                       float* sums) const {
  const int64_t d = geometry_.head_dim;
  std::fill_n(sums, d, 0.0f);
  for (int64_t page = 0; page < n_pages + PagesFor(options_.extra_tokens); ++page) {
    const auto [tile, type] = SourceTile(at, page, n_pages);
    Kernels().DotRows(
        type, {x.data() + page * kPageTokens, kPageTokens, tile, sums, d, 1, d, kPageTokens});
  }
}

void HostLasso::Spread(const Place& at, int64_t n_pages, const float* u,
                       std::vector<float>& y) const {
  const int64_t d = geometry_.head_dim;
  for (int64_t page = 0; page < n_pages + PagesFor(options_.extra_tokens); ++page) {
    const auto [tile, type] = SourceTile(at, page, n_pages);
    Kernels().Gemm(type, {u, d, tile, kPageTokens, Kernels().panel_columns,
                          y.data() + page * kPageTokens, kPageTokens, 1, kPageTokens, d});
  }
}

void HostLasso::ApplyInverse(Scratch& scratch) const {
  const int64_t d = geometry_.head_dim;
  const double rho = options_.rho;
  const double largest = std::max(scratch.values[0], 0.0);
  const double floor = kRankTolerance * largest * (largest + rho);
  for (int64_t i = 0; i < d; ++i) {
    double dot = 0;
    for (int64_t j = 0; j < d; ++j) dot += scratch.vectors[i * d + j] * scratch.sums[j];
    const double g = std::max(scratch.values[i], 0.0);
    const double divisor =
        options_.form == LassoForm::kVanilla ? g + rho : g * (g + rho);  // Eq. 3a, Eq. 4
    const bool counts = options_.form == LassoForm::kVanilla || divisor > floor;
    scratch.rotated[i] = counts ? dot / divisor : 0;
  }
  for (int64_t j = 0; j < d; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += scratch.vectors[i * d + j] * scratch.rotated[i];
    scratch.sums[j] = static_cast<float>(sum);
  }
}

void HostLasso::AttendRow(const Place& at, int64_t position, float* out, Scratch& t) const {
  const int64_t d = geometry_.head_dim;
  const int64_t n_pages = PagesFor(position);
  const int64_t fixed_begin = n_pages * kPageTokens;
  const auto for_sources = [&](auto&& body) {
    for (int64_t i = 0; i < position; ++i) body(i);
    for (int64_t i = 0; i < options_.extra_tokens; ++i) body(fixed_begin + i);
  };
  for (std::vector<float>* x : {&t.b, &t.c, &t.z, &t.w}) std::fill(x->begin(), x->end(), 0.0f);
  const double* gram = Gram(at);
  std::copy_n(gram, d * d, t.vectors.begin());
  t.values = SymmetricEigenvectors(d, t.vectors);
  Spread(at, n_pages, t.target.data(), t.b0);
  const float rho = options_.rho, shrink = options_.lambda / options_.rho;
  for (int32_t step = 0; step < options_.iterations; ++step) {
    for_sources([&](int64_t i) { t.b[i] = t.b0[i] + rho * (t.z[i] - t.w[i]); });
    Gather(at, n_pages, t.b, t.sums.data());
    ApplyInverse(t);
    Spread(at, n_pages, t.sums.data(), t.y);
    for_sources([&](int64_t i) {
      const float c = options_.form == LassoForm::kVanilla ? (t.b[i] - t.y[i]) / rho : t.y[i];
      t.c[i] = std::clamp(c, -options_.clamp, options_.clamp);
      const float sum = t.c[i] + t.w[i];
      t.z[i] = std::copysign(std::max(std::fabs(sum) - shrink, 0.0f), sum);
      t.w[i] += t.c[i] - t.z[i];
    });
  }
  float total = 0;
  for_sources([&](int64_t i) {
    float power = t.c[i];
    for (int32_t k = 1; k < options_.power; ++k) power *= t.c[i];
    t.c[i] = power;
    total += std::fabs(power);
  });
  Gather(at, n_pages, t.c, out);
  for (int64_t j = 0; j < d; ++j) out[j] = total > 0 ? out[j] / total : 0.0f;
}

void HostLasso::Attend(const LayerRows& rows) {
  const AttentionGeometry& g = geometry_;
  const auto n_tasks = static_cast<int64_t>(segments_.size()) * g.n_heads;
  context_.pool->ParallelFor(n_tasks, [&](int64_t task, int thread) {
    const Segment& s = segments_[task / g.n_heads];
    const int64_t head = task % g.n_heads;
    const Place at{s.sequence, rows.layer, head};
    Scratch& scratch = scratch_[thread];
    for (int64_t i = 0; i < s.n_rows; ++i) {
      const int64_t position = s.first_position + i, row = s.first_row + i;
      std::byte* tile = Tile(at, position / kPageTokens);
      WriteColumn(g, tile, position % kPageTokens, rows.x + row * rows.ld_x + head * g.head_dim);
      // Later rows read the row as the cache holds it; so does this one.
      ReadColumn(g, tile, position % kPageTokens, scratch.target.data());
      AttendRow(at, position, rows.out + row * rows.ld_out + head * g.head_dim, scratch);
      AddToGram(scratch.target, Gram(at));
    }
  });
}

}  // namespace lowkey
