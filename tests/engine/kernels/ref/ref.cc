#include "tests/engine/kernels/ref/ref.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lowkey::ref {
namespace {

float Bf16Value(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// A bfloat16 pattern's magnitude; infinity's pattern stands for the power of two after the largest.
double Magnitude(uint16_t bits) {
  return bits == 0x7f80 ? 0x1p128 : static_cast<double>(Bf16Value(bits));
}

}  // namespace

double Element(const void* data, StorageType type, int64_t index) {
  if (type == StorageType::kFloat32) return static_cast<const float*>(data)[index];
  if (type == StorageType::kInt8) return static_cast<const int8_t*>(data)[index];
  return Bf16Value(static_cast<const uint16_t*>(data)[index]);
}

std::vector<double> Gemm(StorageType b_type, int64_t panel_columns, const GemmArgs& g) {
  std::vector<double> c(g.n_rows * g.n_cols, 0.0);
  for (int64_t i = 0; i < g.n_rows; ++i) {
    for (int64_t j = 0; j < g.n_cols; ++j) {
      double sum = g.into == GemmArgs::Into::kAccumulate ? g.c[i * g.ldc + j] : 0.0;
      const int64_t panel = j / panel_columns, column = j % panel_columns;
      for (int64_t kk = 0; kk < g.k; ++kk) {
        const int64_t at = panel * g.b_panel_stride + kk * g.b_row_stride + column;
        sum += Element(g.a, StorageType::kFloat32, i * g.lda + kk) * Element(g.b, b_type, at);
      }
      c[i * g.n_cols + j] = sum;
    }
  }
  return c;
}

std::vector<double> DotRows(StorageType b_type, const DotRowsArgs& g) {
  std::vector<double> out(g.n_rows * g.n_dots, 0.0);
  for (int64_t i = 0; i < g.n_rows; ++i) {
    for (int64_t j = 0; j < g.n_dots; ++j) {
      double sum = g.out[i * g.ld_out + j];
      for (int64_t kk = 0; kk < g.k; ++kk) {
        sum += static_cast<double>(g.a[i * g.lda + kk]) * Element(g.b, b_type, j * g.k + kk);
      }
      out[i * g.n_dots + j] = sum;
    }
  }
  return out;
}

std::vector<double> Linear(const std::vector<float>& weight, const std::vector<float>& x,
                           int64_t n_in) {
  const auto n_out = static_cast<int64_t>(weight.size()) / n_in;
  const auto n_rows = static_cast<int64_t>(x.size()) / n_in;
  std::vector<double> y(n_rows * n_out, 0.0);
  for (int64_t i = 0; i < n_rows; ++i) {
    for (int64_t j = 0; j < n_out; ++j) {
      for (int64_t k = 0; k < n_in; ++k) {
        y[i * n_out + j] += static_cast<double>(x[i * n_in + k]) * weight[j * n_in + k];
      }
    }
  }
  return y;
}

std::vector<double> RmsNorm(const std::vector<float>& x, const std::vector<float>& w, double eps) {
  double sum = 0.0;
  for (float v : x) sum += static_cast<double>(v) * v;
  const double root = std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = x[i] / root * w[i];
  return out;
}

std::vector<double> SiluMul(const std::vector<float>& gate, const std::vector<float>& up) {
  std::vector<double> out(gate.size());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    out[i] = x / (1.0 + std::exp(-x)) * up[i];
  }
  return out;
}

std::vector<double> Rope(const std::vector<float>& x, const std::vector<float>& cos,
                         const std::vector<float>& sin) {
  const size_t half = cos.size();
  std::vector<double> out(x.size());
  for (size_t at = 0; at < x.size(); at += 2 * half) {
    for (size_t j = 0; j < half; ++j) {
      const double a = x[at + j], b = x[at + half + j];
      out[at + j] = a * cos[j] - b * sin[j];
      out[at + half + j] = b * cos[j] + a * sin[j];
    }
  }
  return out;
}

std::vector<double> Softmax(const std::vector<float>& scores) {
  const double top = *std::max_element(scores.begin(), scores.end());
  std::vector<double> weights;
  double sum = 0.0;
  for (float s : scores) {
    weights.push_back(std::exp(s - top));
    sum += weights.back();
  }
  for (double& w : weights) w /= sum;
  return weights;
}

std::vector<double> TaylorWeights(const std::vector<float>& scores, int64_t n_visible) {
  std::vector<double> weights(scores.size(), 0.0);
  for (int64_t i = 0; i < n_visible; ++i) {
    const double s = scores[i];
    weights[i] = 1.0 + s + s * s / 2.0;
  }
  return weights;
}

std::vector<double> TurnedProducts(const TurnedProductsArgs& g) {
  std::vector<double> out;
  for (int64_t i = 0; i < g.n_rows; ++i) {
    const float* x = g.x + i * g.ldx;
    for (int64_t f = 0; f < g.n_out; ++f) {
      const int64_t j = f % g.n, turn = (g.first + f / g.n) * g.step;
      out.push_back(static_cast<double>(x[j]) * x[(j + turn) % g.n]);
    }
  }
  return out;
}

uint16_t ToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const auto below = static_cast<uint16_t>((bits >> 16) & 0x7fffu);
  if (std::isnan(x)) return static_cast<uint16_t>(sign | below | 0x40u);
  if (std::isinf(x)) return static_cast<uint16_t>(sign | 0x7f80u);
  const auto above = static_cast<uint16_t>(below + 1);
  const double magnitude = std::fabs(static_cast<double>(x));
  const double to_below = magnitude - Magnitude(below);
  const double to_above = Magnitude(above) - magnitude;
  const bool take_above = to_above < to_below || (to_above == to_below && above % 2 == 0);
  return static_cast<uint16_t>(sign | (take_above ? above : below));
}

}  // namespace lowkey::ref
