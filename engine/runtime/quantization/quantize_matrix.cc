#include "engine/runtime/quantization/quantize_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/lowrank/cholesky.h"
#include "engine/lowrank/matmul.h"

namespace lowkey {
namespace {

// The damping is added to the diagonal, whose mean is 1. It grows tenfold until fp32 can factor.
constexpr double kDamping = 0.01;
constexpr int64_t kLanes = 64;  // rows of the matrix that are rounded together
// A group's scale is tried at 1, 1 - kScaleStep, ... of what spans the group's range.
constexpr int kScales = 12;
constexpr float kScaleStep = 0.04f;
constexpr float kMaxCodeOf4Bits = 15;
constexpr float kMaxCodeOf8Bits = 255, kMiddleOf8Bits = GroupedCodes::kMiddleOf8Bits;

// One number of each of kLanes rows.
using Lanes = std::array<float, kLanes>;

// Rounds to the nearest integer, ties to even, for |x| < 2^22.
inline float Round(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: the sum has no fraction
  return (x + kShift) - kShift;
}

// Scales with their zero points, and the weighted squared error of the group with them.
struct Scaling {
  float CodeOf(float x, int64_t lane) const {
    const float steps = Round(std::clamp(x * inverse[lane], -max_code, max_code));
    return std::clamp(steps + zero[lane], 0.0f, max_code);
  }

  float max_code = kMaxCodeOf4Bits;
  Lanes scale, inverse, zero, error;
};

void SetScale(int64_t lane, float scale, Scaling& s) {
  s.scale[lane] = HalfToFloat(FloatToHalf(scale));
  s.inverse[lane] = s.scale[lane] > 0 ? 1 / s.scale[lane] : 0;
}

void Measure(absl::Span<const Lanes> targets, const float* weights, Scaling& s) {
  s.error.fill(0);
  for (size_t i = 0; i < targets.size(); ++i) {
    for (int64_t r = 0; r < kLanes; ++r) {
      const float code = s.CodeOf(targets[i][r], r);
      const float error = targets[i][r] - s.scale[r] * (code - s.zero[r]);
      s.error[r] += weights[i] * error * error;
    }
  }
}

void KeepBetter(const Scaling& tried, Scaling& best) {
  for (int64_t r = 0; r < kLanes; ++r) {
    if (!(tried.error[r] < best.error[r])) continue;
    best.scale[r] = tried.scale[r];
    best.inverse[r] = tried.inverse[r];
    best.zero[r] = tried.zero[r];
    best.error[r] = tried.error[r];
  }
}

// Tries the scale that fits the codes of `best` best.
void Refine(absl::Span<const Lanes> targets, const float* weights, Scaling& best) {
  Lanes products{}, squares{};
  for (size_t i = 0; i < targets.size(); ++i) {
    for (int64_t r = 0; r < kLanes; ++r) {
      const float code = best.CodeOf(targets[i][r], r) - best.zero[r];
      products[r] += weights[i] * code * targets[i][r];
      squares[r] += weights[i] * code * code;
    }
  }
  Scaling tried = best;
  for (int64_t r = 0; r < kLanes; ++r) {
    if (squares[r] > 0) SetScale(r, products[r] / squares[r], tried);
  }
  Measure(targets, weights, tried);
  KeepBetter(tried, best);
}

// The range of a group's numbers, with 0 in it.
struct Range {
  explicit Range(absl::Span<const Lanes> targets) {
    for (const Lanes& target : targets) {
      for (int64_t r = 0; r < kLanes; ++r) {
        low[r] = std::min(low[r], target[r]);
        high[r] = std::max(high[r], target[r]);
      }
    }
  }

  Lanes low{}, high{};
};

Scaling NoScaling(float max_code, float zero) {
  Scaling best;
  best.max_code = max_code;
  best.scale.fill(0), best.inverse.fill(0), best.zero.fill(zero);
  best.error.fill(std::numeric_limits<float>::infinity());
  return best;
}

// Tries scales, each with the zero points around the range's own. GPTQ stores a zero point less 1.
Scaling FindScaling4Bits(absl::Span<const Lanes> targets, const float* weights) {
  const Range range(targets);
  Scaling best = NoScaling(kMaxCodeOf4Bits, 8);
  for (int step = 0; step < kScales; ++step) {
    Scaling tried = best;
    Lanes nearest;
    for (int64_t r = 0; r < kLanes; ++r) {
      const float width = range.high[r] - range.low[r];
      SetScale(r, width / kMaxCodeOf4Bits * (1 - kScaleStep * static_cast<float>(step)), tried);
      nearest[r] = width > 0 ? Round(-range.low[r] / width * kMaxCodeOf4Bits) : 8.0f;
    }
    for (const float shift : {-1.0f, 0.0f, 1.0f}) {
      for (int64_t r = 0; r < kLanes; ++r) {
        tried.zero[r] = std::clamp(nearest[r] + shift, 1.0f, kMaxCodeOf4Bits);
      }
      Measure(targets, weights, tried);
      KeepBetter(tried, best);
    }
  }
  return best;
}

Scaling FindScaling8Bits(absl::Span<const Lanes> targets, const float* weights) {
  const Range range(targets);
  Scaling best = NoScaling(kMaxCodeOf8Bits, kMiddleOf8Bits);
  for (int64_t r = 0; r < kLanes; ++r) {
    SetScale(r, std::max(-range.low[r], range.high[r]) / (kMiddleOf8Bits - 1), best);
  }
  Measure(targets, weights, best);
  return best;
}

// Rounds kLanes rows of a matrix, or those that are left.
class RowBlock {
 public:
  RowBlock(const TensorView& matrix, const Rounding& rounding, int64_t first_row,
           const ErrorMetric& metric)
      : metric_(metric),
        rounding_(rounding),
        n_out_(matrix.shape[0]),
        n_in_(matrix.shape[1]),
        first_row_(first_row),
        n_rows_(std::min(kLanes, n_out_ - first_row)),
        weights_(n_in_),
        errors_(n_in_) {
    std::vector<float> row(n_in_);
    for (int64_t r = 0; r < n_rows_; ++r) {
      LoadRow(matrix, first_row_ + r, row.data());
      for (int64_t i = 0; i < n_in_; ++i) weights_[i][r] = row[i];
    }
  }

  void Round(RoundedMatrix& out) {
    const int64_t size = rounding_.group_size;
    for (int64_t end = n_in_; end > 0; end -= size) RoundGroup(end - size, end, out);
  }

  double error() const { return error_; }

  // The expected square of the outputs.
  double OutputSize() {
    const std::vector<Lanes>* rows = &weights_;
    std::vector<Lanes> products;
    if (!metric_.ratios.empty()) {
      products.resize(n_in_);
      Matmul({n_in_, kLanes, n_in_}, {metric_.ratios.data(), n_in_, 1},
             {weights_[0].data(), kLanes, 1}, {}, {products[0].data(), kLanes}, pack_);
      rows = &products;
    }
    double size = 0;
    for (int64_t i = 0; i < n_in_; ++i) {
      for (int64_t r = 0; r < n_rows_; ++r) {
        size += double{metric_.weights[i]} * (*rows)[i][r] * (*rows)[i][r];
      }
    }
    return size;
  }

 private:
  int in_word() const { return 32 / rounding_.bits; }
  int ShiftOf(int64_t i) const { return rounding_.bits * static_cast<int>(i % in_word()); }
  const float* ratios(int64_t i) const { return metric_.ratios.data() + i * n_in_; }

  // targets_ = the group's weights, each with what makes up for the errors behind the group.
  void FindTargets(int64_t begin, int64_t end) {
    targets_.assign(weights_.begin() + begin, weights_.begin() + end);
    if (metric_.ratios.empty() || end == n_in_) return;
    Matmul({end - begin, kLanes, n_in_ - end}, {ratios(begin) + end, n_in_, 1},
           {errors_[end].data(), kLanes, 1}, {.accumulate = true}, {targets_[0].data(), kLanes},
           pack_);
  }

  void RoundGroup(int64_t begin, int64_t end, RoundedMatrix& out) {
    FindTargets(begin, end);
    const float* weights = metric_.weights.data() + begin;
    Scaling scaling = rounding_.bits == 4 ? FindScaling4Bits(targets_, weights)
                                          : FindScaling8Bits(targets_, weights);
    Refine(targets_, weights, scaling);
    for (int64_t i = end - 1; i >= begin; --i) {
      Lanes& target = targets_[i - begin];
      for (int64_t j = i + 1; j < end && !metric_.ratios.empty(); ++j) {
        const float ratio = ratios(i)[j];
        for (int64_t r = 0; r < kLanes; ++r) target[r] += ratio * errors_[j][r];
      }
      for (int64_t r = 0; r < kLanes; ++r) {
        const float code = scaling.CodeOf(target[r], r);
        const float rounded = scaling.scale[r] * (code - scaling.zero[r]);
        errors_[i][r] = weights_[i][r] - rounded;
        const double left = target[r] - rounded;
        error_ += metric_.weights[i] * left * left;
        codes_[r] = static_cast<uint32_t>(code);
      }
      for (int64_t r = 0; r < n_rows_; ++r) {
        out.codes[i / in_word() * n_out_ + first_row_ + r] |= codes_[r] << ShiftOf(i);
      }
    }
    StoreScaling(begin / (end - begin), scaling, out);
  }

  void StoreScaling(int64_t group, const Scaling& scaling, RoundedMatrix& out) const {
    for (int64_t r = 0; r < n_rows_; ++r) {
      const int64_t row = first_row_ + r;
      out.scales[group * n_out_ + row] = FloatToHalf(scaling.scale[r]);
      out.zeros[(group * n_out_ + row) / in_word()] |= (static_cast<uint32_t>(scaling.zero[r]) - 1)
                                                       << ShiftOf(row);
    }
  }

  const ErrorMetric& metric_;
  const Rounding rounding_;
  const int64_t n_out_, n_in_, first_row_, n_rows_;
  std::vector<Lanes> weights_, errors_;  // [n_in]; an error is a weight less its rounded one
  std::vector<Lanes> targets_;           // [group_size]
  std::array<uint32_t, kLanes> codes_ = {};
  std::vector<float> pack_;
  double error_ = 0;
};

}  // namespace

ErrorMetric EqualInputs(int64_t n_in) { return {n_in, std::vector<float>(n_in, 1.0f), {}}; }

std::optional<ErrorMetric> MetricOf(absl::Span<const double> second_moment, ThreadPool& pool) {
  ErrorMetric metric;
  const auto n = static_cast<int64_t>(std::sqrt(static_cast<double>(second_moment.size())) + 0.5);
  metric.n_in = n;
  double trace = 0;
  for (int64_t i = 0; i < n; ++i) trace += second_moment[i * n + i];
  if (!std::isfinite(trace)) return std::nullopt;
  // Scaled to a mean of 1, which no ratio sees: small inputs must not underflow.
  const double scale = trace > 0 ? static_cast<double>(n) / trace : 1;
  std::vector<float>& r = metric.ratios;
  bool is_factored = false;
  for (double damping = kDamping; damping < 100 && !is_factored; damping *= 10) {
    r.assign(second_moment.size(), 0.0f);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i; j < n; ++j) {
        const double more = i == j ? damping : 0;
        r[i * n + j] = static_cast<float>(second_moment[i * n + j] * scale + more);
      }
    }
    is_factored = UpperCholesky(n, pool, r.data());
  }
  if (!is_factored) return std::nullopt;
  metric.weights.resize(n);
  for (int64_t i = 0; i < n; ++i) {
    const float diagonal = r[i * n + i];
    metric.weights[i] = diagonal * diagonal;
    std::fill_n(r.begin() + i * n, i, 0.0f);
    for (int64_t j = i; j < n; ++j) r[i * n + j] /= diagonal;
  }
  return metric;
}

RoundedMatrix QuantizeMatrix(const TensorView& matrix, const Rounding& rounding,
                             const ErrorMetric& metric, ThreadPool& pool) {
  const int64_t n_out = matrix.shape[0], n_in = matrix.shape[1];
  const int64_t n_groups = n_in / rounding.group_size, in_word = 32 / rounding.bits;
  RoundedMatrix out;
  out.codes.resize(n_in / in_word * n_out);
  out.zeros.resize(n_groups * (n_out / in_word));
  out.scales.resize(n_groups * n_out);
  const int64_t n_blocks = (n_out + kLanes - 1) / kLanes;
  std::vector<std::pair<double, double>> sums(n_blocks);
  pool.ParallelFor(n_blocks, [&](int64_t task, int) {
    RowBlock block(matrix, rounding, task * kLanes, metric);
    block.Round(out);
    sums[task] = {block.error(), block.OutputSize()};
  });
  for (const auto& [error, size] : sums) {
    out.error += error;
    out.size += size;
  }
  return out;
}

}  // namespace lowkey
