// Products with coded weights (coded_weight.h) in integers, a part of kernels_inl.h: see its first
// lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_CODED_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_CODED_INL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/coded_weight.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// ------------------------------------------------------------------ rows

// Codes a group of a row's numbers, and sets its scale and scale times the sum of its codes. The
// largest magnitude gets the largest code; numbers that are all below 1e-30 become 0. A number that
// is not finite makes the scale NaN.
template <class Code>
inline void CodeGroup(const float* x, int64_t n, Code* codes, float* scale, float* sum) {
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
    *scale = *sum = largest >= kInfinity ? __builtin_nanf("") : 0.0f;
    return;
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
  *sum = *scale * static_cast<float>(total);
}

template <class V>
void CodeRow(CodeFormat format, const float* x, int64_t n, const CodedRows& out) {
  const CodeShape& shape = kCodeShapes[static_cast<int>(format)];
  for (int64_t first = 0, g = 0; first < n; first += shape.group, ++g) {
    const int64_t in_group = n - first < shape.group ? n - first : shape.group;
    if (shape.row_bits == 8) {
      auto* codes = reinterpret_cast<int8_t*>(out.codes) + first;
      CodeGroup(x + first, in_group, codes, out.scales + g, out.sums + g);
    } else {
      auto* codes = reinterpret_cast<int16_t*>(out.codes) + first;
      CodeGroup(x + first, in_group, codes, out.scales + g, out.sums + g);
    }
  }
}

// ------------------------------------------------------------------ weights

inline constexpr int64_t kChunk = 256;  // inputs that are expanded at once
// How far ahead a weight that is read front to back is asked for: the memory's latency.
inline constexpr int64_t kCodesAhead = 2048;  // bytes

// Some groups of a panel, expanded.
template <class V>
struct ExpandedChunk {
  static constexpr int64_t kPanel = 2 * V::kLanes;
  static constexpr int64_t kMaxGroups = 16;
  int64_t n_groups, group;  // inputs of a group
  bool has_add;
  const int8_t* codes[kMaxGroups];  // of a group: [inputs / side][kPanel][side]
  float scales[kMaxGroups][kPanel];
  float adds[kMaxGroups][kPanel];  // where the format has them
  alignas(64) int8_t unpacked[kChunk * kPanel];
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
      if constexpr (kShape.has_add() && !kShape.stores_add && !kShape.stores_zero) {
        group_add = V::Mul(group_scale, V::Set1(static_cast<float>(-kShape.zero)));
      }
      if constexpr (kShape.has_add()) V::Store(out.adds[first + g] + column, group_add);
    }
  }
}

// Expands n_in inputs, whole blocks of at most kChunk inputs together.
// Codes of 4 bits may stay packed.
template <class V, CodeFormat kFormat, bool kUnpacks>
[[gnu::noinline]] void Expand(const std::byte* b, int64_t n_in, ExpandedChunk<V>& out) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr int64_t kPanel = 2 * V::kLanes, kGroups = kShape.block / kShape.group;
  out.n_groups = n_in / kShape.group;
  out.group = kShape.group;
  out.has_add = kShape.has_add();
  for (int64_t k = 0; k < n_in; k += kShape.block, b += kPanel * kShape.bytes()) {
    ExpandScales<V, kFormat>(b, k / kShape.group, out);
    const std::byte* codes = b + kPanel * kShape.header_bytes();
    const int8_t* expanded = reinterpret_cast<const int8_t*>(codes);
    if constexpr (kShape.bits < 8) {
      for (int64_t at = 0; at < kPanel * kShape.bytes(); at += 64) {
        __builtin_prefetch(b + at + kCodesAhead);
      }
    }
    if constexpr (kUnpacks) {
      int8_t* unpacked = out.unpacked + k * kPanel;
      for (int64_t unit = 0; unit < kShape.block / kCodeUnit; ++unit) {
        UnpackUnit<V, kShape.bits, kShape.row_bits == 8 ? 0 : kShape.zero>(
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

// ------------------------------------------------------------------ products

// How 32 bits of a row's codes meet those of a weight. Where kIsShifted, each row's codes have 128
// more than they are, and every sum so much as Shift adds up.
template <class V, int kRowBits, bool kIsSigned>
struct CodeSums;

template <class V>
struct CodeSums<V, 16, true> {
  static constexpr bool kIsShifted = false;
  static auto Load(const int8_t* codes) { return V::LoadPairs(codes); }
  static auto Row(const std::byte* codes) { return V::SetPair(codes); }
  template <class A, class B>
  static void Add(const A& row, const B& weight, typename V::Ints& sum) {
    V::AddPairs(row, weight, sum);
  }
  static typename V::Ints Total(const typename V::Ints& sum) { return sum; }
};

// Codes of a weight that are 0 to 15.
template <class V>
struct CodeSums<V, 8, false> {
  static constexpr bool kIsShifted = false;
  static auto Load(const int8_t* codes) { return V::LoadQuads(codes); }
  static auto Row(const std::byte* codes) { return V::SetQuad(codes); }
  template <class A, class B>
  static void Add(const A& row, const B& weight, typename V::Ints& sum) {
    V::AddQuads(row, weight, sum);
  }
  static typename V::Ints Total(const typename V::Ints& sum) { return V::TotalOfQuads(sum); }
};

template <class V>
struct CodeSums<V, 8, true> {
  static constexpr bool kIsShifted = V::kShiftsRows;
  static auto Load(const int8_t* codes) { return V::LoadSignedQuads(codes); }
  static auto Row(const std::byte* codes) { return V::SetSignedQuad(codes); }
  template <class A, class B>
  static void Add(const A& row, const B& weight, typename V::Ints& sum) {
    V::AddSignedQuads(row, weight, sum);
  }
  template <class B>
  static void Shift(const B& weight, typename V::Ints& sum) {
    V::AddSignedQuads(V::ShiftOfRows(), weight, sum);
  }
  static typename V::Ints Total(const typename V::Ints& sum) { return sum; }
};

// Some rows of a tile: row i of the first step lies at rows.codes + 4 * i.
struct TileRows {
  CodedRows rows;
  int64_t n_in_tile;
};

// Whether there are registers for results beside sums.
template <class V>
inline constexpr bool kKeepsResults = V::kMaxRows > 6;

// The results of kRows rows of a panel while a chunk is added to them, in registers if kKeepsResults.
template <class V, int kRows>
class TileResults {
 public:
  TileResults(float* c, int64_t ldc) : c_(c), ldc_(ldc) {
    if constexpr (!kKeepsResults<V>) return;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      for (int half = 0; half < 2; ++half) vectors_[i][half] = V::Load(At(i, half));
    }
  }
  ~TileResults() {
    if constexpr (!kKeepsResults<V>) return;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      for (int half = 0; half < 2; ++half) V::Store(At(i, half), vectors_[i][half]);
    }
  }
  TileResults(const TileResults&) = delete;
  TileResults& operator=(const TileResults&) = delete;

  typename V::Vec Get(int row, int half) const {
    if constexpr (kKeepsResults<V>) return vectors_[row][half];
    return V::Load(At(row, half));
  }
  void Set(int row, int half, const typename V::Vec& x) {
    if constexpr (kKeepsResults<V>) {
      vectors_[row][half] = x;
    } else {
      V::Store(At(row, half), x);
    }
  }

 private:
  float* At(int row, int half) const { return c_ + row * ldc_ + half * V::kLanes; }

  float* const c_;
  const int64_t ldc_;
  typename V::Vec vectors_[kKeepsResults<V> ? kRows : 1][2];
};

// Adds a group's sums to the results.
template <class V, class S, int kRows>
inline void AddGroup(const ExpandedChunk<V>& chunk, const TileRows& tile, int64_t g,
                     const typename V::Ints (&sums)[kRows][2], TileResults<V, kRows>& results) {
  const auto left = V::Load(chunk.scales[g]), right = V::Load(chunk.scales[g] + V::kLanes);
  const auto add_left = V::Load(chunk.adds[g]), add_right = V::Load(chunk.adds[g] + V::kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const auto scale = V::Set1(tile.rows.scales[g * tile.n_in_tile + i]);
    const auto one = V::Mul(V::ToFloats(S::Total(sums[i][0])), scale);
    const auto two = V::Mul(V::ToFloats(S::Total(sums[i][1])), scale);
    auto y = V::Fused(one, left, results.Get(i, 0));
    auto z = V::Fused(two, right, results.Get(i, 1));
    if (chunk.has_add) {
      const auto sum = V::Set1(tile.rows.sums[g * tile.n_in_tile + i]);
      y = V::Fused(sum, add_left, y);
      z = V::Fused(sum, add_right, z);
    }
    results.Set(i, 0, y);
    results.Set(i, 1, z);
  }
}

// Multiplies some rows of a tile with the groups of a chunk: c [kRows, kPanel].
template <class V, int kRows, int kRowBits, bool kIsSigned>
[[gnu::noinline]] void CodedTile(const ExpandedChunk<V>& chunk, const TileRows& tile, float* c,
                                 int64_t ldc) {
  using S = CodeSums<V, kRowBits, kIsSigned>;
  constexpr int64_t kSide = 32 / kRowBits, kHalf = V::kLanes * kSide;  // codes of a vector
  TileResults<V, kRows> results(c, ldc);
  const std::byte* a = tile.rows.codes;
  for (int64_t g = 0; g < chunk.n_groups; ++g) {
    typename V::Ints sums[kRows][2], shifts[2];
    if constexpr (S::kIsShifted) shifts[0] = shifts[1] = V::NoInts();
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = V::NoInts();
    const int8_t* codes = chunk.codes[g];
    for (int64_t k = 0; k < chunk.group; k += kSide, a += 4 * tile.n_in_tile, codes += 2 * kHalf) {
      if constexpr (kRows <= 4 && kIsSigned) __builtin_prefetch(codes + kCodesAhead);
      const auto left = S::Load(codes), right = S::Load(codes + kHalf);
      if constexpr (S::kIsShifted) {
        S::Shift(left, shifts[0]);
        S::Shift(right, shifts[1]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const auto row = S::Row(a + 4 * i);
        S::Add(row, left, sums[i][0]);
        S::Add(row, right, sums[i][1]);
      }
    }
    if constexpr (S::kIsShifted) {
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        for (int half = 0; half < 2; ++half) V::Subtract(shifts[half], sums[i][half]);
      }
    }
    AddGroup<V, S>(chunk, tile, g, sums, results);
  }
}

// The same with codes of 4 bits that stay packed. A few rows do not pay for unpacking into memory.
template <class V, int kRows>
[[gnu::noinline]] void PackedTile(const ExpandedChunk<V>& chunk, const TileRows& tile, float* c,
                                  int64_t ldc) {
  using S = CodeSums<V, 8, false>;
  constexpr int64_t kVector = 4 * V::kLanes, kQuads = kCodeUnit / 4;
  TileResults<V, kRows> results(c, ldc);
  const std::byte* a = tile.rows.codes;
  for (int64_t g = 0; g < chunk.n_groups; ++g, a += kQuads * 4 * kRows) {
    typename V::Ints sums[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = V::NoInts();
    const int8_t* codes = chunk.codes[g];
#pragma GCC unroll 4
    for (int64_t quad = 0; quad < kQuads / 2; ++quad) {
      // The low bits are those of this quad, the high bits those of one half a unit further on.
      const auto left = V::LoadNibbles(codes + 2 * quad * kVector);
      const auto right = V::LoadNibbles(codes + (2 * quad + 1) * kVector);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const auto row = S::Row(a + 4 * (quad * kRows + i));
        S::Add(row, left.low, sums[i][0]);
        S::Add(row, right.low, sums[i][1]);
        const auto later = S::Row(a + 4 * ((quad + kQuads / 2) * kRows + i));
        S::Add(later, left.high, sums[i][0]);
        S::Add(later, right.high, sums[i][1]);
      }
    }
    AddGroup<V, S>(chunk, tile, g, sums, results);
  }
}

// The most rows that are multiplied at once. Signed codes of 8 bits take twice the registers where rows
// are not shifted.
template <class V, int kRowBits, bool kIsSigned>
inline constexpr int kCodedRows = kKeepsResults<V> ||
                                          (V::kMaxRows == 6 && kRowBits == 8 && kIsSigned)
                                      ? V::kMaxRows / 2
                                      : V::kMaxRows;

template <class V, int kRows, int kRowBits, bool kIsSigned>
void CodedTileOf(int64_t n_rows, const ExpandedChunk<V>& chunk, const TileRows& tile, float* c,
                 int64_t ldc) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) {
      return CodedTileOf<V, kRows - 1, kRowBits, kIsSigned>(n_rows, chunk, tile, c, ldc);
    }
  }
  CodedTile<V, kRows, kRowBits, kIsSigned>(chunk, tile, c, ldc);
}

// Multiplies a tile, in two parts where it has more rows than there are registers.
template <class V, int kRowBits, bool kIsSigned>
void CodedTiles(const ExpandedChunk<V>& chunk, const CodedRows& rows, int64_t n_rows, float* c,
                int64_t ldc) {
  constexpr int kMost = kCodedRows<V, kRowBits, kIsSigned>;
  const int64_t n_parts = n_rows > kMost ? 2 : 1;
  for (int64_t part = 0; part < n_parts; ++part) {
    const int64_t first = n_rows * part / n_parts, end = n_rows * (part + 1) / n_parts;
    const TileRows tile = {{rows.codes + 4 * first, rows.scales + first, rows.sums + first},
                           n_rows};
    CodedTileOf<V, kMost, kRowBits, kIsSigned>(end - first, chunk, tile, c + first * ldc, ldc);
  }
}

inline constexpr int64_t kPackedRows = 4;  // that multiply packed codes

template <class V, int kRows>
void PackedTileOf(int64_t n_rows, const ExpandedChunk<V>& chunk, const TileRows& tile, float* c,
                  int64_t ldc) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return PackedTileOf<V, kRows - 1>(n_rows, chunk, tile, c, ldc);
  }
  PackedTile<V, kRows>(chunk, tile, c, ldc);
}

template <class V, CodeFormat kFormat, bool kUnpacks>
void MultiplyCoded(const CodedProductArgs& p) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr int64_t kPanel = 2 * V::kLanes;
  ExpandedChunk<V> chunk;
  // These are NumTiles and NextTileRows of kernels.h.
  const int64_t n_tiles = (p.n_rows + V::kMaxRows - 1) / V::kMaxRows;
  const int64_t n_all_groups = p.lda / kShape.group;
  for (int64_t panel = 0; panel < p.n_panels; ++panel) {
    const std::byte* b = p.b + panel * p.b_panel_bytes;
    for (int64_t k = p.k_begin; k < p.k_end; k += kChunk) {
      const int64_t n_in = p.k_end - k < kChunk ? p.k_end - k : kChunk;
      Expand<V, kFormat, kUnpacks>(b + k / kShape.block * kPanel * kShape.bytes(), n_in, chunk);
      int64_t row = 0;
      for (int64_t t = 0; t < n_tiles; ++t) {
        const int64_t rows = (p.n_rows - row) / (n_tiles - t);
        const int64_t groups = row * n_all_groups + k / kShape.group * rows;
        float* c = p.c + row * p.ldc + panel * kPanel;
        if (k == 0) {
          for (int64_t i = 0; i < rows * 2; ++i) {
            V::Store(c + i / 2 * p.ldc + i % 2 * V::kLanes, V::Zero());
          }
        }
        const int64_t codes = (row * p.lda + k * rows) * kShape.row_bits / 8;
        const CodedRows tile = {p.a.codes + codes, p.a.scales + groups, p.a.sums + groups};
        if constexpr (kShape.bits == 4 && !kUnpacks) {
          PackedTileOf<V, kPackedRows>(rows, chunk, {tile, rows}, c, p.ldc);
        } else {
          CodedTiles<V, kShape.row_bits, kShape.row_bits == 16 || kShape.bits == 8>(chunk, tile,
                                                                                    rows, c, p.ldc);
        }
        row += rows;
      }
    }
  }
}

template <class V, CodeFormat kFormat>
void MultiplyFormat(const CodedProductArgs& p) {
  constexpr int kBits = kCodeShapes[static_cast<int>(kFormat)].bits;
  if constexpr (kBits == 4) {
    if (p.n_rows <= kPackedRows && p.n_rows <= V::kMaxRows) {
      return MultiplyCoded<V, kFormat, false>(p);
    }
  }
  MultiplyCoded<V, kFormat, kBits != 8>(p);
}

template <class V>
void MultiplyCodes(CodeFormat format, const CodedProductArgs& p) {
  switch (format) {
    case CodeFormat::kInt8:
      return MultiplyFormat<V, CodeFormat::kInt8>(p);
    case CodeFormat::kQ4_0:
      return MultiplyFormat<V, CodeFormat::kQ4_0>(p);
    case CodeFormat::kQ4_1:
      return MultiplyFormat<V, CodeFormat::kQ4_1>(p);
    case CodeFormat::kQ5_0:
      return MultiplyFormat<V, CodeFormat::kQ5_0>(p);
    case CodeFormat::kQ5_1:
      return MultiplyFormat<V, CodeFormat::kQ5_1>(p);
    case CodeFormat::kQ8_0:
      return MultiplyFormat<V, CodeFormat::kQ8_0>(p);
    case CodeFormat::kQ4_K:
      return MultiplyFormat<V, CodeFormat::kQ4_K>(p);
    case CodeFormat::kQ5_K:
      return MultiplyFormat<V, CodeFormat::kQ5_K>(p);
    case CodeFormat::kQ6_K:
      return MultiplyFormat<V, CodeFormat::kQ6_K>(p);
    case CodeFormat::kInt4:
      return MultiplyFormat<V, CodeFormat::kInt4>(p);
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_CODED_INL_H_
