#include "engine/kernels/narrow_weight.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <vector>

#include "engine/base/dtype.h"

namespace lowkey {
namespace {

constexpr float kMostInt8 = 127, kMostFloat8 = 448;
constexpr float kLeastMagnitude = 1e-35f;  // its scale is normal, and 1 / scale finite
constexpr uint16_t kNan = 0x7fc0;          // in bf16

// Returns the largest magnitude; NaN where a number is not finite.
float LargestOf(absl::Span<const float> x) {
  float largest = 0;
  bool finite = true;
  for (float v : x) {
    const float magnitude = std::fabs(v);
    finite &= magnitude <= FLT_MAX;
    largest = magnitude > largest ? magnitude : largest;
  }
  return finite ? largest : std::nanf("");
}

uint8_t ToInt8(float x) {
  // Adding 1.5 x 2^23 leaves the rounded number in the low bits.
  const auto rounded = std::bit_cast<int32_t>(x + 0x1.8p23f) - std::bit_cast<int32_t>(0x1.8p23f);
  // A scale that was rounded down asks for 127.25.
  return static_cast<uint8_t>(std::clamp(rounded, -127, 127));
}

// Codes numbers that share a scale, and returns the scale.
uint16_t NarrowGroup(absl::Span<const float> x, StorageType type, uint8_t* codes) {
  const float largest = LargestOf(x);
  if (std::isnan(largest) || largest < kLeastMagnitude) {
    std::fill_n(codes, x.size(), uint8_t{0});
    return std::isnan(largest) ? kNan : uint16_t{0};
  }
  const bool is_int8 = type == StorageType::kInt8;
  const BFloat16 scale = ToBFloat16(largest / (is_int8 ? kMostInt8 : kMostFloat8));
  const float inverse = 1 / ToFloat(scale);
  if (is_int8) {
    for (size_t i = 0; i < x.size(); ++i) codes[i] = ToInt8(x[i] * inverse);
  } else {
    for (size_t i = 0; i < x.size(); ++i) codes[i] = ToFloat8(x[i] * inverse);
  }
  return scale.bits;
}

}  // namespace

uint8_t ToFloat8(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude > 0x7f800000u) {
    code = 0x7f;
  } else if (magnitude > std::bit_cast<uint32_t>(kMostFloat8)) {
    code = 0x7e;
  } else if (magnitude < std::bit_cast<uint32_t>(0x1p-6f)) {
    // Below the smallest normal number the unit is 2^-9, which is the last place of 2^14.
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) -
           std::bit_cast<uint32_t>(0x1p14f);
  } else {
    code = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1)) >> 20;
  }
  return static_cast<uint8_t>(sign | code);
}

float Float8ToFloat(uint8_t code) {
  const uint32_t sign = uint32_t{code & 0x80u} << 24, magnitude = code & 0x7fu;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude >= 8) return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-9f;
  return sign != 0 ? -subnormal : subnormal;
}

void NarrowRow(absl::Span<const float> row, StorageType type, uint8_t* codes, uint16_t* scales,
               int64_t ld_scales) {
  const size_t group = type == StorageType::kInt8 ? kNarrowBlock : std::max<size_t>(row.size(), 1);
  for (size_t at = 0; at < row.size(); at += group) {
    *scales = NarrowGroup(row.subspan(at, group), type, codes + at);
    scales += ld_scales;
  }
}

void NarrowRows(absl::Span<const RowRange> parts, const NarrowLayout& layout, NarrowRange rows,
                std::byte* weight) {
  auto* scales = reinterpret_cast<uint16_t*>(weight + layout.scales_at());
  std::vector<float> row(layout.n_in);
  std::vector<uint8_t> codes(layout.n_in);
  int64_t first_of_part = 0;
  for (const RowRange& part : parts) {
    const int64_t end_of_part = first_of_part + part.n_rows;
    const int64_t first = std::max(rows.first, first_of_part);
    const int64_t end = part.matrix == nullptr ? first : std::min(rows.end, end_of_part);
    for (int64_t i = first; i < end; ++i) {
      LoadRow(*part.matrix, part.first + i - first_of_part, row.data());
      NarrowRow(row, layout.type, codes.data(), scales + i, layout.ld_scales());
      std::byte* out = weight + i * layout.row_bytes();
      for (int64_t k = 0; k < layout.n_in; ++k) out[NarrowPlace(k)] = std::byte{codes[k]};
    }
    first_of_part = end_of_part;
  }
}

void WidenRow(const NarrowLayout& layout, const std::byte* weight, int64_t row, float* out) {
  const auto* codes = reinterpret_cast<const uint8_t*>(weight) + row * layout.row_bytes();
  const auto* scales = reinterpret_cast<const uint16_t*>(weight + layout.scales_at()) + row;
  for (int64_t k = 0; k < layout.n_in; ++k) {
    const uint8_t code = codes[NarrowPlace(k)];
    if (layout.type == StorageType::kInt8) {
      const BFloat16 scale{scales[k / kNarrowBlock * layout.ld_scales()]};
      out[k] = static_cast<float>(static_cast<int8_t>(code)) * ToFloat(scale);
    } else {
      out[k] = Float8ToFloat(code) * ToFloat(BFloat16{*scales});
    }
  }
}

}  // namespace lowkey
