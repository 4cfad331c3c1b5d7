#include "engine/lowrank/principal_code.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/kernels.h"
#include "engine/lowrank/codebook.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = kCodedTokens;
constexpr int kNumGains = 1 << kCodeGainBits;
constexpr int64_t kEscapeMapBytes = kTokens / 8;
constexpr int64_t kEscapeGroup = 32;
constexpr double kMaxErrorRatio = 4;

int64_t NumEscapeGroups(int64_t dim) { return (dim + kEscapeGroup - 1) / kEscapeGroup; }

int64_t EscapeBytes(int64_t dim) {
  return NumEscapeGroups(dim) * static_cast<int64_t>(sizeof(float)) + dim;
}

int64_t BitBudget(int64_t dim, double bits_per_number) {
  return static_cast<int64_t>(bits_per_number * static_cast<double>(dim));
}

void Widen(const std::vector<uint16_t>& from, std::vector<float>& to) {
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = ToFloat(BFloat16{from[i]});
}

// c [n_rows][64] = a [n_rows][k], with rows of lda numbers, times b [k][64].
void Multiply(const float* a, int64_t lda, int64_t n_rows, int64_t k, const float* b, float* c) {
  GemmArgs product;
  product.a = a;
  product.lda = lda;
  product.b = b;
  product.b_row_stride = kTokens;
  product.b_panel_stride = Kernels().panel_columns;
  product.c = c;
  product.ldc = kTokens;
  product.n_rows = n_rows;
  product.n_cols = kTokens;
  product.k = k;
  Kernels().Gemm(StorageType::kFloat32, product);
}

// Quantizes numbers u to the levels of a codebook by halving. NaN has level 0.
class Quantizer {
 public:
  Quantizer(Density density, int bits) : half_(1 << (bits - 1)), book_(CodebookOf(density, bits)) {}
  uint32_t Index(float u) const {
    uint32_t index = 0;
    const float* thresholds = book_.thresholds.data();
    for (uint32_t step = half_; step > 0; step /= 2) {
      index += u >= thresholds[index + step - 1] ? step : 0;
    }
    return index;
  }
  float Level(uint32_t index) const { return book_.levels[index]; }

 private:
  const uint32_t half_;
  const Codebook book_;
};

float ScaleOf(const PrincipalCode& code, int64_t component) {
  return std::sqrt(code.variances[component]);
}

// Adds the squared errors of one component y [64] under every gain to errors [gains][64].
void AddErrors(const PrincipalCode& code, const BitPlan& plan, int64_t component, const float* y,
               float* errors) {
  if (plan.bits[component] == 0) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const float error = y[t] * y[t];
      for (int g = 0; g < kNumGains; ++g) errors[g * kTokens + t] += error;
    }
    return;
  }
  const Quantizer quantizer(plan.density, plan.bits[component]);
  for (int g = 0; g < kNumGains; ++g) {
    const float scale = kCodeGains[g] * ScaleOf(code, component);
    const float inverse = 1 / scale;
    float* sums = errors + g * kTokens;
    for (int64_t t = 0; t < kTokens; ++t) {
      const float error = y[t] - scale * quantizer.Level(quantizer.Index(y[t] * inverse));
      sums[t] += error * error;
    }
  }
}

// Appends the indices of one component y [64].
void AppendComponent(const PrincipalCode& code, const BitPlan& plan, int64_t component,
                     const float* y, const uint8_t* gains, std::vector<std::byte>& out) {
  const int bits = plan.bits[component];
  const Quantizer quantizer(plan.density, bits);
  float inverses[kNumGains];
  for (int g = 0; g < kNumGains; ++g) inverses[g] = 1 / (kCodeGains[g] * ScaleOf(code, component));
  for (int64_t t = 0; t < kTokens; t += 8) {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) {
      word |= uint64_t{quantizer.Index(y[t + i] * inverses[gains[t + i]])} << (i * bits);
    }
    for (int i = 0; i < bits; ++i) out.push_back(static_cast<std::byte>(word >> (8 * i)));
  }
}

// The index of each vector's gain.
using Gains = std::array<uint8_t, kTokens>;

// Returns the gains of least error. Leaves x - mean, the components and the errors of every gain in
// the scratch.
Gains ChooseGains(const PrincipalCode& code, const BitPlan& plan, const float* x,
                  PrincipalScratch& scratch) {
  const int64_t dim = code.dim;
  Widen(code.encode, scratch.matrix);
  scratch.centered.resize(dim * kTokens);
  scratch.components.resize(dim * kTokens);
  for (int64_t j = 0; j < dim; ++j) {
    for (int64_t t = 0; t < kTokens; ++t) {
      scratch.centered[j * kTokens + t] = x[j * kTokens + t] - code.mean[j];
    }
  }
  float* y = scratch.components.data();
  Multiply(scratch.matrix.data(), dim, dim, dim, scratch.centered.data(), y);
  scratch.errors.assign(kNumGains * kTokens, 0.0f);
  float* errors = scratch.errors.data();
  for (int64_t i = 0; i < dim; ++i) AddErrors(code, plan, i, y + i * kTokens, errors);
  Gains gains = {};
  for (int64_t t = 0; t < kTokens; ++t) {
    for (uint8_t g = 1; g < kNumGains; ++g) {
      if (errors[g * kTokens + t] < errors[gains[t] * kTokens + t]) gains[t] = g;
    }
  }
  return gains;
}

void AppendEscape(const PrincipalCode& code, const float* centered, int64_t token,
                  std::vector<std::byte>& out) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const int64_t n_groups = NumEscapeGroups(code.dim);
  const size_t scales_at = out.size();
  out.resize(scales_at + n_groups * sizeof(float));
  for (int64_t g = 0; g < n_groups; ++g) {
    const int64_t begin = g * kEscapeGroup, end = std::min(begin + kEscapeGroup, code.dim);
    float largest = 0;
    bool is_finite = true;
    for (int64_t j = begin; j < end; ++j) {
      const float value = centered[j * kTokens + token];
      is_finite = is_finite && std::isfinite(value);
      largest = std::max(largest, std::abs(value));
    }
    const float scale = is_finite ? largest / 127 : kNan;
    std::memcpy(out.data() + scales_at + g * sizeof(float), &scale, sizeof(scale));
    const float inverse = is_finite && scale > 0 ? 1 / scale : 0;
    for (int64_t j = begin; j < end; ++j) {
      float index = 0;  // an inverse that overflowed quantizes to nothing
      if (inverse > 0 && std::isfinite(inverse)) {
        index =
            std::clamp(std::nearbyint(centered[j * kTokens + token] * inverse), -127.0f, 127.0f);
      }
      out.push_back(static_cast<std::byte>(static_cast<int8_t>(index)));
    }
  }
}

// Says where the parts of a code begin that follow its components.
struct Tail {
  int64_t gains = 0, escape_map = 0, escapes = 0;
};
Tail TailOf(const BitPlan& plan) {
  const int64_t gains = plan.fixed_bytes - kCodeGainBytes - kEscapeMapBytes;
  return {gains, gains + kCodeGainBytes, plan.fixed_bytes};
}

int GainIndex(absl::Span<const std::byte> bytes, const Tail& tail, int64_t token) {
  return static_cast<int>(bytes[tail.gains + token / 4] >> (2 * (token % 4))) & 3;
}

uint64_t EscapeMap(absl::Span<const std::byte> bytes, const Tail& tail) {
  uint64_t map = 0;
  for (int i = 0; i < kEscapeMapBytes; ++i) {
    map |= uint64_t{static_cast<uint8_t>(bytes[tail.escape_map + i])} << (8 * i);
  }
  return map;
}

// Reads one component's indices into y [64].
void ReadComponent(const PrincipalCode& code, const BitPlan& plan, int64_t component,
                   const std::byte* from, const float* gains, float* y) {
  const int bits = plan.bits[component];
  const float* levels = CodebookOf(plan.density, bits).levels.data();
  const float scale = ScaleOf(code, component);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (int64_t t = 0; t < kTokens; t += 8, from += bits) {
    uint64_t word = 0;
    for (int i = 0; i < bits; ++i) word |= uint64_t{static_cast<uint8_t>(from[i])} << (8 * i);
    for (int i = 0; i < 8; ++i, word >>= bits)
      y[t + i] = levels[word & mask] * (gains[t + i] * scale);
  }
}

void ReadEscape(const PrincipalCode& code, const std::byte* from, int64_t token, float* x) {
  const std::byte* codes = from + NumEscapeGroups(code.dim) * static_cast<int64_t>(sizeof(float));
  for (int64_t j = 0; j < code.dim; ++j) {
    float scale = 0;
    std::memcpy(&scale, from + j / kEscapeGroup * sizeof(float), sizeof(scale));
    x[j * kTokens + token] =
        code.mean[j] + scale * static_cast<float>(static_cast<int8_t>(codes[j]));
  }
}

}  // namespace

BitPlan PlanBits(absl::Span<const float> variances, double bits_per_number) {
  const auto dim = static_cast<int64_t>(variances.size());
  BitPlan plan;
  plan.bits.resize(dim);
  const auto gain = [&](int64_t i) {
    const int b = plan.bits[i];
    return variances[i] * (GaussianDistortion(b) - GaussianDistortion(b + 1));
  };
  // The largest gain first; of equal ones the first component's.
  std::priority_queue<std::pair<double, int64_t>> next;
  for (int64_t i = 0; i < dim; ++i) {
    if (variances[i] > 0) next.emplace(gain(i), -i);
  }
  int64_t n_left = BitBudget(dim, bits_per_number);
  for (; n_left > 0 && !next.empty(); --n_left) {
    const int64_t i = -next.top().second;
    next.pop();
    if (++plan.bits[i] < kMaxCodeBits) next.emplace(gain(i), -i);
  }
  plan.fixed_bytes = kCodeGainBytes + kEscapeMapBytes;
  plan.escape_bytes = EscapeBytes(dim);
  for (int64_t i = 0; i < dim; ++i) {
    plan.n_coded += plan.bits[i] > 0 ? 1 : 0;
    plan.fixed_bytes += plan.bits[i] * kTokens / 8;
    plan.expected_error += variances[i] * GaussianDistortion(plan.bits[i]);
  }
  return plan;
}

int64_t MaxCodeBytes(int64_t dim, double bits_per_number) {
  const int64_t n_bits = std::min(BitBudget(dim, bits_per_number), dim * kMaxCodeBits);
  return n_bits * kTokens / 8 + kCodeGainBytes + kEscapeMapBytes + kTokens * EscapeBytes(dim);
}

void EncodeComponents(const PrincipalCode& code, const float* x, PrincipalScratch& scratch,
                      CodedComponents& out) {
  BitPlan plan;
  plan.density = Density::kGaussian;
  plan.bits = out.bits;
  plan.bits.resize(code.dim);
  out.gains = ChooseGains(code, plan, x, scratch);
  out.indices.clear();
  for (size_t i = 0; i < out.bits.size(); ++i) {
    const Quantizer quantizer(plan.density, out.bits[i]);
    for (int64_t t = 0; t < kTokens; ++t) {
      const float scale = kCodeGains[out.gains[t]] * ScaleOf(code, static_cast<int64_t>(i));
      const float u = scratch.components[i * kTokens + t] / scale;
      out.indices.push_back(static_cast<uint8_t>(quantizer.Index(u)));
    }
  }
}

void EncodeVectors(const PrincipalCode& code, const BitPlan& plan, const float* x,
                   PrincipalScratch& scratch, std::vector<std::byte>& out) {
  const Gains gains = ChooseGains(code, plan, x, scratch);
  uint64_t escapes = 0;
  for (int64_t t = 0; t < kTokens; ++t) {
    const float error = scratch.errors[gains[t] * kTokens + t];
    const bool fits = error <= kMaxErrorRatio * plan.expected_error;
    if (!fits) escapes |= uint64_t{1} << t;  // also when the error is NaN
  }
  for (int64_t i = 0; i < plan.n_coded; ++i) {
    AppendComponent(code, plan, i, scratch.components.data() + i * kTokens, gains.data(), out);
  }
  for (int64_t t = 0; t < kTokens; t += 4) {
    out.push_back(static_cast<std::byte>(gains[t] | gains[t + 1] << 2 | gains[t + 2] << 4 |
                                         gains[t + 3] << 6));
  }
  for (int i = 0; i < kEscapeMapBytes; ++i)
    out.push_back(static_cast<std::byte>(escapes >> (8 * i)));
  for (int64_t t = 0; t < kTokens; ++t) {
    if ((escapes >> t & 1) != 0) AppendEscape(code, scratch.centered.data(), t, out);
  }
}

absl::Status CheckVectors(const BitPlan& plan, absl::Span<const std::byte> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  int64_t expected = plan.fixed_bytes;
  if (size >= expected) expected += CountEscapes(plan, bytes) * plan.escape_bytes;
  if (size == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("code: ", size, " bytes, expected ", expected));
}

absl::Status DecodeVectors(const PrincipalCode& code, const BitPlan& plan,
                           absl::Span<const std::byte> bytes, PrincipalScratch& scratch, float* x) {
  LK_RETURN_IF_ERROR(CheckVectors(plan, bytes));
  const Tail tail = TailOf(plan);
  const int64_t dim = code.dim;
  const uint64_t escapes = EscapeMap(bytes, tail);
  float gains[kTokens];
  for (int64_t t = 0; t < kTokens; ++t) gains[t] = kCodeGains[GainIndex(bytes, tail, t)];
  Widen(code.decode, scratch.matrix);
  scratch.components.resize(dim * kTokens);
  const std::byte* from = bytes.data();
  for (int64_t i = 0; i < plan.n_coded; ++i) {
    ReadComponent(code, plan, i, from, gains, scratch.components.data() + i * kTokens);
    from += plan.bits[i] * kTokens / 8;
  }
  if (plan.n_coded > 0) {
    Multiply(scratch.matrix.data(), dim, dim, plan.n_coded, scratch.components.data(), x);
  } else {
    std::fill_n(x, dim * kTokens, 0.0f);
  }
  for (int64_t j = 0; j < dim; ++j) {
    for (int64_t t = 0; t < kTokens; ++t) x[j * kTokens + t] += code.mean[j];
  }
  from = bytes.data() + tail.escapes;
  for (int64_t t = 0; t < kTokens; ++t) {
    if ((escapes >> t & 1) == 0) continue;
    ReadEscape(code, from, t, x);
    from += plan.escape_bytes;
  }
  return absl::OkStatus();
}

int64_t CountEscapes(const BitPlan& plan, absl::Span<const std::byte> bytes) {
  return std::popcount(EscapeMap(bytes, TailOf(plan)));
}

}  // namespace lowkey
