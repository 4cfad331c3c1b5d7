// Rows in the codes that coded weights meet (coded_weight.h), a part of kernels_inl.h: see its
// first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_CODE_ROWS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_CODE_ROWS_INL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/coded_weight.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// Codes a group of a row's numbers; sets its scale and returns the sum of its codes. The largest
// magnitude gets the largest code; numbers that are all below 1e-30 become 0. A number that is not
// finite makes the scale NaN. The function is inlined, so that loops over a whole group have a
// constant length.
template <class V, class Code>
[[gnu::always_inline]] inline int32_t CodeGroup(const float* x, int64_t n, Code* codes,
                                                float* scale) {
  constexpr float kMost = sizeof(Code) == 1 ? 127 : 32767;
  constexpr uint32_t kInfinity = 0x7f800000u, kLeast = 0x0da24260u;  // 1e-30
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, x + i, sizeof(bits));
    bits &= 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  if (largest >= kInfinity || largest < kLeast) {
    for (int64_t i = 0; i < n; ++i) codes[i] = 0;
    *scale = largest >= kInfinity ? __builtin_nanf("") : 0.0f;
    return 0;
  }
  float magnitude;
  __builtin_memcpy(&magnitude, &largest, sizeof(magnitude));
  *scale = magnitude / kMost;
  const float inverse = kMost / magnitude;
  int32_t total = 0;
  for (int64_t i = 0; i < n; ++i) {
    // Adding 1.5 x 2^23 leaves the rounded number in the low bits.
    const float shifted = x[i] * inverse + 0x1.8p23f;
    int32_t bits;
    __builtin_memcpy(&bits, &shifted, sizeof(bits));
    const int32_t code = bits - 0x4b400000;
    codes[i] = static_cast<Code>(code);
    total += code;
  }
  return total;
}

// Returns what is added to a weight's codes before they meet rows of 8 bits.
template <class V>
constexpr int32_t CodeOffset(const CodeShape& shape) {
  return shape.row_bits != 8 ? 0 : shape.bits == 8 ? V::kOffsetOfSigned : shape.zero;
}

// Codes eight groups at once, where a table can do that; false where they are left to CodeGroup.
template <class V, int64_t kGroup, class Code>
[[gnu::always_inline]] inline bool CodeEightGroups(const float* x, Code* codes, float* scales,
                                                   int32_t* totals) {
  if constexpr (kGroup == 32 && sizeof(Code) == 1 && requires { &V::CodeEight; }) {
    return V::CodeEight(x, codes, scales, totals);
  }
  return false;
}

template <class V, int64_t kGroup, class Code>
void CodeGroups(int32_t offset, const float* x, int64_t n, const CodedRows& out) {
  auto* codes = reinterpret_cast<Code*>(out.codes);
  for (int64_t first = 0, g = 0; first < n;) {
    int32_t totals[8];
    int64_t n_groups = 8;
    if (n - first < 8 * kGroup ||
        !CodeEightGroups<V, kGroup>(x + first, codes + first, out.scales + g, totals)) {
      n_groups = 1;
      totals[0] = n - first < kGroup
                      ? CodeGroup<V>(x + first, n - first, codes + first, out.scales + g)
                      : CodeGroup<V>(x + first, kGroup, codes + first, out.scales + g);
    }
    for (int64_t i = 0; i < n_groups; ++i, ++g, first += kGroup) {
      out.sums[g] = out.scales[g] * static_cast<float>(totals[i]);
      out.starts[g] = -offset * totals[i];
    }
  }
}

template <class V>
void CodeRow(CodeFormat format, const float* x, int64_t n, const CodedRows& out) {
  const CodeShape& shape = kCodeShapes[static_cast<int>(format)];
  const int32_t offset = CodeOffset<V>(shape);
  if (shape.row_bits == 8) return CodeGroups<V, 32, int8_t>(offset, x, n, out);
  if (shape.group == 16) return CodeGroups<V, 16, int16_t>(offset, x, n, out);
  if (shape.group == 32) return CodeGroups<V, 32, int16_t>(offset, x, n, out);
  return CodeGroups<V, 64, int16_t>(offset, x, n, out);
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_CODE_ROWS_INL_H_
