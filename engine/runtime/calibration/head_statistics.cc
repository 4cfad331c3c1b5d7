#include "engine/runtime/calibration/head_statistics.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/find_all_codes.h"
#include "engine/runtime/calibration/prefix_statistics.h"

namespace lowkey {
namespace {

// Returns a position below n that looks random and is the same everywhere.
int64_t FarPosition(int64_t position, int64_t n) {
  const uint64_t mixed = static_cast<uint64_t>(position) * 0x9e3779b97f4a7c15u;
  return static_cast<int64_t>((mixed >> 16) % static_cast<uint64_t>(n));
}

}  // namespace

HeadStatistics::HeadStatistics(const AttentionGeometry& geometry,
                               std::vector<double> inverse_frequencies, int64_t context_tokens)
    : geometry_(geometry),
      inverse_frequencies_(std::move(inverse_frequencies)),
      context_tokens_(context_tokens) {
  const int64_t n = geometry_.n_layers * geometry_.n_kv_heads;
  keys_.assign(n, Moments(geometry_.key_dim()));
  queries_.assign(n, Moments(geometry_.key_dim()));
  values_.assign(n, Moments(geometry_.head_dim));
}

HeadStatistics::Turned HeadStatistics::Turn(const Segment& segment, bool to_far) const {
  const int64_t n_skipped =
      std::max<int64_t>(0, PrefixStatistics::kSkippedTokens - segment.first_position);
  Turned turned{
      segment.first_row + n_skipped, std::max<int64_t>(0, segment.n_rows - n_skipped), {}, {}};
  for (int64_t i = 0; i < turned.n_rows; ++i) {
    const int64_t position = segment.first_position + n_skipped + i;
    const int64_t target = to_far ? FarPosition(position, context_tokens_) : 0;
    const auto by = static_cast<double>(target - position);
    for (const double frequency : inverse_frequencies_) {
      turned.cos.push_back(static_cast<float>(std::cos(by * frequency)));
      turned.sin.push_back(static_cast<float>(std::sin(by * frequency)));
    }
  }
  return turned;
}

void HeadStatistics::AddHeads(const Turned& turned, const float* from, int64_t ld, int64_t n_heads,
                              int64_t dim, bool turns, Moments& moments, ThreadPool& pool) {
  const int64_t half = dim / 2, n = n_heads * dim;
  gathered_.resize(turned.n_rows * n);
  for (int64_t i = 0; i < turned.n_rows; ++i) {
    float* heads = gathered_.data() + i * n;
    std::copy_n(from + (turned.first_row + i) * ld, n, heads);
    if (!turns) continue;
    Kernels().rope(heads, turned.cos.data() + i * half, turned.sin.data() + i * half, n_heads, dim);
  }
  moments.Add(gathered_.data(), turned.n_rows * n_heads, pool, scratch_);
}

void HeadStatistics::Add(const LayerRows& rows, absl::Span<const Segment> segments,
                         ThreadPool& pool) {
  const AttentionGeometry& g = geometry_;
  for (const Segment& segment : segments) {
    const Turned turned = Turn(segment, true), back = Turn(segment, false);
    if (turned.n_rows == 0) continue;
    for (int64_t h = 0; h < g.n_kv_heads; ++h) {
      const int64_t at = rows.layer * g.n_kv_heads + h;
      AddHeads(back, rows.k + h * g.key_dim(), rows.ld_qkv, 1, g.key_dim(), true, keys_[at], pool);
      AddHeads(turned, rows.q + h * g.group() * g.key_dim(), rows.ld_qkv, g.group(), g.key_dim(),
               true, queries_[at], pool);
      AddHeads(turned, rows.v + h * g.head_dim, rows.ld_qkv, 1, g.head_dim, false, values_[at],
               pool);
    }
  }
}

std::vector<HeadStatistics::PairMeans> HeadStatistics::FindPairMeans() const {
  constexpr int64_t kPositions = 4096;
  const size_t n = inverse_frequencies_.size();
  std::vector<PairMeans> pairs(n * n);
  std::vector<double> cos(n), sin(n);
  for (int64_t i = 0; i < kPositions; ++i) {
    const auto position = static_cast<double>(FarPosition(i, context_tokens_));
    for (size_t f = 0; f < n; ++f) {
      cos[f] = std::cos(position * inverse_frequencies_[f]);
      sin[f] = std::sin(position * inverse_frequencies_[f]);
    }
    for (size_t f = 0; f < n; ++f) {
      for (size_t g = 0; g < n; ++g) {
        PairMeans& pair = pairs[f * n + g];
        pair.cos_cos += cos[f] * cos[g] / kPositions;
        pair.cos_sin += cos[f] * sin[g] / kPositions;
        pair.sin_cos += sin[f] * cos[g] / kPositions;
        pair.sin_sin += sin[f] * sin[g] / kPositions;
      }
    }
  }
  return pairs;
}

VectorStatistics HeadStatistics::AfterRope(const Moments& keys,
                                           const std::vector<PairMeans>& pairs) const {
  VectorStatistics out{keys.n_rows(), keys.Mean(), keys.Covariance()};
  const int64_t dim = keys.dim(), half = dim / 2;
  const std::vector<double> before = out.covariance;
  // Numbers i and half + i are a pair (x, y), which turns to (cos x - sin y, sin x + cos y).
  for (int64_t f = 0; f < half; ++f) {
    for (int64_t g = 0; g < half; ++g) {
      const PairMeans& m = pairs[f * half + g];
      const double xx = before[f * dim + g], xy = before[f * dim + half + g];
      const double yx = before[(half + f) * dim + g], yy = before[(half + f) * dim + half + g];
      out.covariance[f * dim + g] =
          m.cos_cos * xx - m.cos_sin * xy - m.sin_cos * yx + m.sin_sin * yy;
      out.covariance[f * dim + half + g] =
          m.cos_sin * xx + m.cos_cos * xy - m.sin_sin * yx - m.sin_cos * yy;
      out.covariance[(half + f) * dim + g] =
          m.sin_cos * xx - m.sin_sin * xy + m.cos_cos * yx - m.cos_sin * yy;
      out.covariance[(half + f) * dim + half + g] =
          m.sin_sin * xx + m.sin_cos * xy + m.cos_sin * yx + m.cos_cos * yy;
    }
  }
  return out;
}

absl::StatusOr<HeadCodes> HeadStatistics::FindCodes(
    ThreadPool& pool, const std::function<void(int64_t)>& progress) const {
  const auto n = static_cast<int64_t>(keys_.size());
  const std::vector<PairMeans> pairs = FindPairMeans();
  const auto find_keys = [&](int64_t i) {
    return FindPrincipalCode({1, geometry_.key_dim(), 0}, AfterRope(keys_[i], pairs),
                             {&queries_[i], 1});
  };
  const auto find_values = [&](int64_t i) {
    return FindPrincipalCode({1, 0, geometry_.head_dim}, values_[i], {});
  };
  const auto after_keys = [&](int64_t found) {
    if (progress) progress(n + found);
  };
  HeadCodes codes;
  codes.n_layers = geometry_.n_layers;
  codes.n_kv_heads = geometry_.n_kv_heads;
  codes.inverse_frequencies = inverse_frequencies_;
  LK_ASSIGN_OR_RETURN(codes.keys, FindAllCodes(n, pool, find_keys, progress));
  LK_ASSIGN_OR_RETURN(codes.values, FindAllCodes(n, pool, find_values, after_keys));
  return codes;
}

}  // namespace lowkey
