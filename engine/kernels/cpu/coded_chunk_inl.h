// Chunks of coded weights (coded_weight.h), expanded, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_CODED_CHUNK_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_CODED_CHUNK_INL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/coded_weight.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// Codes that stay as they are stored are asked for this far ahead, to hide the memory's latency.
inline constexpr int64_t kCodesAhead = 4096;  // bytes

// Asks the memory for n_bytes.
[[gnu::always_inline]] inline void AskFor(const void* from, int64_t n_bytes) {
  for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(static_cast<const char*>(from) + i);
}

// ExpandedChunk holds some groups of a panel, expanded.
template <class V>
struct ExpandedChunk {
  static constexpr int64_t kPanel = 2 * V::kLanes;
  static constexpr int64_t kMaxGroups = kMaxCodedChunk / 16;
  int64_t n_groups;
  const int8_t* codes[kMaxGroups];  // of a group: [inputs / side][kPanel][side]
  alignas(64) float scales[kMaxGroups][kPanel];
  float adds[kMaxGroups][kPanel];  // where the format has them
  alignas(64) int8_t unpacked[kMaxCodedChunk * kPanel];
};

// Unpacks a unit of 32 inputs of codes of fewer than 8 bits.
template <class V, int kBits, int kZero>
inline void UnpackUnit(const uint8_t* __restrict unit, int8_t* __restrict out) {
  constexpr int64_t kHalf = kCodeUnit / 2 * 2 * V::kLanes;
  [[maybe_unused]] const uint8_t* high = unit + kHalf;
  if constexpr (kBits == 4) {
    for (int64_t j = 0; j < kHalf; ++j) {
      out[j] = static_cast<int8_t>((unit[j] & 15) - kZero);
      out[j + kHalf] = static_cast<int8_t>((unit[j] >> 4) - kZero);
    }
  } else {
    constexpr int kHighBits = kBits - 4, kPlanes = 8 / kHighBits;
    constexpr int64_t kPlane = 2 * kHalf / kPlanes;
#pragma GCC unroll 8
    for (int plane = 0; plane < kPlanes; ++plane) {
      const uint8_t* low = unit + plane * kPlane % kHalf;
      const int shift = plane < kPlanes / 2 ? 0 : 4;
      for (int64_t j = 0; j < kPlane; ++j) {
        const int four = low[j] >> shift & 15;
        const int above = high[j] >> (plane * kHighBits) & ((1 << kHighBits) - 1);
        out[plane * kPlane + j] = static_cast<int8_t>((four | above << 4) - kZero);
      }
    }
  }
}

template <class V, bool kIsBFloat16>
inline typename V::Vec LoadScale(const std::byte* p, int64_t column) {
  const auto* bits = reinterpret_cast<const uint16_t*>(p) + column;
  if constexpr (kIsBFloat16) {
    return V::Load(bits);
  } else {
    return V::LoadFloat16(bits);
  }
}

// Expands a block's header: the scales of its groups, from group `first` of the chunk on.
template <class V, CodeFormat kFormat>
inline void ExpandScales(const std::byte* block, int64_t first, ExpandedChunk<V>& out) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr int64_t kPanel = 2 * V::kLanes, kGroups = kShape.block / kShape.group;
  const std::byte* adds = block + 2 * kPanel;
  const auto* zeros = reinterpret_cast<const int8_t*>(adds);
  const auto* factors = reinterpret_cast<const int8_t*>(adds + (kShape.stores_add    ? 2 * kPanel
                                                                : kShape.stores_zero ? kPanel
                                                                                     : 0));
  for (int64_t column = 0; column < kPanel; column += V::kLanes) {
    const auto scale = LoadScale<V, kShape.is_bfloat16>(block, column);
    auto add = V::Zero();
    if constexpr (kShape.stores_add) add = LoadScale<V, false>(adds, column);
    if constexpr (kShape.stores_zero) add = V::Mul(scale, V::Load(zeros + column));
    if constexpr (kShape.is_negative) add = V::Sub(V::Zero(), add);
    for (int64_t g = 0; g < kGroups; ++g) {
      const int8_t* factor = factors + g * kPanel + column;
      auto group_scale = scale, group_add = add;
      if constexpr (kShape.sub_bytes > 0) group_scale = V::Mul(scale, V::Load(factor));
      if constexpr (kShape.sub_bytes > 1) {
        group_add = V::Mul(add, V::Load(factor + kGroups * kPanel));
      }
      V::Store(out.scales[first + g] + column, group_scale);
      if constexpr (kShape.has_add()) V::Store(out.adds[first + g] + column, group_add);
    }
  }
}

// Expands n_in inputs: whole blocks, at most kMaxCodedChunk. Codes of 4 bits may stay packed.
// kSigns takes the zero off codes for rows of 8 bits. kAsks asks the memory for later headers.
template <class V, CodeFormat kFormat, bool kUnpacks, bool kAsks, bool kSigns = false>
[[gnu::noinline]] void Expand(const std::byte* b, int64_t n_in, ExpandedChunk<V>& out) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr int64_t kPanel = 2 * V::kLanes, kGroups = kShape.block / kShape.group;
  out.n_groups = n_in / kShape.group;
  for (int64_t k = 0; k < n_in; k += kShape.block, b += kPanel * kShape.bytes()) {
    ExpandScales<V, kFormat>(b, k / kShape.group, out);
    const std::byte* codes = b + kPanel * kShape.header_bytes();
    const int8_t* expanded = reinterpret_cast<const int8_t*>(codes);
    // Tiles of few rows ask for codes that stay as they are; this asks for what lies between them.
    if constexpr (kShape.bits < 8 && kAsks) {
      AskFor(b + kCodesAhead, kPanel * kShape.header_bytes());
    } else if constexpr (kShape.bits == 8) {
      __builtin_prefetch(b + n_in / kShape.block * kPanel * kShape.bytes());
    }
    if constexpr (kUnpacks) {
      int8_t* unpacked = out.unpacked + k * kPanel;
      for (int64_t unit = 0; unit < kShape.block / kCodeUnit; ++unit) {
        UnpackUnit<V, kShape.bits, kShape.row_bits == 8 && !kSigns ? 0 : kShape.zero>(
            reinterpret_cast<const uint8_t*>(codes) + unit * kCodeUnit * kPanel * kShape.bits / 8,
            unpacked + unit * kCodeUnit * kPanel);
      }
      expanded = unpacked;
    }
    for (int64_t g = 0; g < kGroups; ++g) {
      out.codes[k / kShape.group + g] =
          expanded + g * kShape.group * kPanel * (kUnpacks ? 8 : kShape.bits) / 8;
    }
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_CODED_CHUNK_INL_H_
