// Products with coded weights (coded_weight.h) in integers, a part of kernels_inl.h: see its first
// lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_CODED_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_CODED_INL_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/coded_weight.h"
#include "engine/kernels/cpu/coded_chunk_inl.h"
#include "engine/kernels/cpu/numbers_inl.h"
#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

// TileKind holds what a tile's code must know about its weight's format when it is compiled.
struct TileKind {
  int row_bits;
  bool is_signed;  // whether the chunk holds signed codes
  bool has_add;
  int64_t group;           // inputs
  bool is_stored = false;  // whether the codes are the weight's own, and not unpacked
};

constexpr TileKind KindOf(const CodeShape& shape) {
  return {shape.row_bits, shape.row_bits == 16 || shape.bits == 8, shape.has_add(), shape.group,
          shape.bits == 8};
}

// CodeSums adds products of 32 bits of a row's codes with a weight's codes. Begin returns the value
// that a sum starts with, and End returns the finished sum.
template <class V, int kRowBits, bool kIsSigned>
struct CodeSums;

template <class V>
struct CodeSums<V, 16, true> {
  static constexpr int64_t kSide = 2;
  static auto Load(const int8_t* codes) { return V::LoadPairs(codes); }
  static auto Row(const std::byte* codes) { return V::SetPair(codes); }
  template <class A, class B>
  static void Add(const A& row, const B& weight, typename V::Ints& sum) {
    V::AddPairs(row, weight, sum);
  }
  static typename V::Ints Begin(const int32_t*) { return V::NoInts(); }
  static typename V::Ints End(const typename V::Ints& sum, const int32_t*) { return sum; }
};

// Codes of a weight that are 0 to 15.
template <class V>
struct CodeSums<V, 8, false> {
  static constexpr int64_t kSide = 4;
  static auto Load(const int8_t* codes) { return V::LoadQuads(codes); }
  static auto Row(const std::byte* codes) { return V::SetQuad(codes); }
  template <class A, class B>
  static void Add(const A& row, const B& weight, typename V::Ints& sum) {
    V::AddQuads(row, weight, sum);
  }
  static typename V::Ints Begin(const int32_t* start) { return V::BeginQuads(start); }
  static typename V::Ints End(const typename V::Ints& sum, const int32_t* start) {
    return V::EndQuads(sum, start);
  }
};

template <class V>
struct CodeSums<V, 8, true> {
  static constexpr int64_t kSide = 4;
  static auto Load(const int8_t* codes) { return V::LoadSignedQuads(codes); }
  static auto Row(const std::byte* codes) { return V::SetQuad(codes); }
  template <class A, class B>
  static void Add(const A& row, const B& weight, typename V::Ints& sum) {
    V::AddSignedQuads(row, weight, sum);
  }
  static typename V::Ints Begin(const int32_t* start) {
    return V::BeginQuads(start);  // the start is 0 where the table has no offset
  }
  static typename V::Ints End(const typename V::Ints& sum, const int32_t*) { return sum; }
};

// TileRows is what a chunk's steps need of a tile of rows.
struct TileRows {
  CodedRows rows;
  int64_t n;                        // rows
  bool is_first;                    // whether the chunk is the first: results begin at 0
  const std::byte* next = nullptr;  // the weight's next chunk
  int64_t group_bytes = 0;          // of a group there
};

// Says whether there are registers for results beside sums.
template <class V>
inline constexpr bool kKeepsResults = V::kMaxRows > 6;

// The results of kRows rows of a panel while a chunk is added to them, in registers if
// kKeepsResults.
template <class V, int kRows>
class TileResults {
 public:
  TileResults(float* c, int64_t ldc, bool begins) : c_(c), ldc_(ldc) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      for (int half = 0; half < 2; ++half) {
        if constexpr (kKeepsResults<V>) {
          vectors_[i][half] = begins ? V::Zero() : V::Load(At(i, half));
        } else if (begins) {
          V::Store(At(i, half), V::Zero());
        }
      }
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

// Adds a group's sums to the results; `at` is the place of the first row's scale.
template <class V, class S, bool kHasAdd, int kRows>
inline void AddGroup(const ExpandedChunk<V>& chunk, const CodedRows& rows, int64_t g, int64_t at,
                     const typename V::Ints (&sums)[kRows][2], TileResults<V, kRows>& results) {
  const auto left = V::Load(chunk.scales[g]), right = V::Load(chunk.scales[g] + V::kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    const auto scale = V::Set1(rows.scales[at + i]);
    const int32_t* start = rows.starts + at + i;
    const auto one = V::Mul(V::ToFloats(S::End(sums[i][0], start)), scale);
    const auto two = V::Mul(V::ToFloats(S::End(sums[i][1], start)), scale);
    auto y = V::Fused(one, left, results.Get(i, 0));
    auto z = V::Fused(two, right, results.Get(i, 1));
    if constexpr (kHasAdd) {
      const auto sum = V::Set1(rows.sums[at + i]);
      y = V::Fused(sum, V::Load(chunk.adds[g]), y);
      z = V::Fused(sum, V::Load(chunk.adds[g] + V::kLanes), z);
    }
    results.Set(i, 0, y);
    results.Set(i, 1, z);
  }
}

// Adds the products of 32 bits of kRows rows with a panel's codes.
template <class V, class S, int kRows>
[[gnu::always_inline]] inline void AddStep(const std::byte* a, const int8_t* codes,
                                           typename V::Ints (&sums)[kRows][2]) {
  const auto left = S::Load(codes), right = S::Load(codes + V::kLanes * S::kSide);
  constexpr int kFirstAlone = V::kTakesLanes && S::kSide == 4 ? kRows / 4 * 4 : 0;
  if constexpr (kFirstAlone > 0) {
    ForNumbers<kRows / 4>([&](auto quad) {
      const auto four = V::LoadFour(a + 16 * quad.value);
      ForNumbers<4>([&](auto lane) {
        auto& sum = sums[4 * quad.value + lane.value];
        V::template AddLane<lane.value>(four, left, sum[0]);
        V::template AddLane<lane.value>(four, right, sum[1]);
      });
    });
  }
#pragma GCC unroll 16
  for (int i = kFirstAlone; i < kRows; ++i) {
    const auto row = S::Row(a + 4 * i);
    S::Add(row, left, sums[i][0]);
    S::Add(row, right, sums[i][1]);
  }
}

// Multiplies kRows rows of a tile, from `first` on, with the groups of a chunk: c [kRows, kPanel].
// One that asks for the next chunk hides the memory's latency behind its products.
template <class V, int kRows, TileKind kKind, bool kAsks>
[[gnu::noinline]] void CodedTile(const ExpandedChunk<V>& chunk, const TileRows& tile, int64_t first,
                                 float* c, int64_t ldc) {
  using S = CodeSums<V, kKind.row_bits, kKind.is_signed>;
  constexpr int64_t kStepCodes = 2 * V::kLanes * S::kSide;
  TileResults<V, kRows> results(c, ldc, tile.is_first);
  const int64_t step = 4 * tile.n;
  const std::byte* a = tile.rows.codes + 4 * first;
  for (int64_t g = 0; g < chunk.n_groups; ++g) {
    typename V::Ints sums[kRows][2];
    const int64_t at = g * tile.n + first;
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = S::Begin(tile.rows.starts + at + i);
    const int8_t* codes = chunk.codes[g];
    if constexpr (kAsks && !kKind.is_stored) {
      AskFor(tile.next + g * tile.group_bytes, tile.group_bytes);
    }
    if constexpr (kRows <= 4) {
      // The loop stays rolled: unrolling gathers its prefetches, and memory is then asked in
      // bursts.
#pragma GCC unroll 1
      for (int64_t k = 0; k < kKind.group; k += S::kSide, a += step, codes += kStepCodes) {
        if constexpr (kKind.is_stored) AskFor(codes + kCodesAhead, kStepCodes);
        AddStep<V, S>(a, codes, sums);
      }
    } else {
      if constexpr (kAsks && kKind.is_stored) {
        AskFor(codes + kCodesAhead, kKind.group * 2 * V::kLanes);
      }
#pragma GCC unroll 8
      for (int64_t k = 0; k < kKind.group; k += S::kSide, a += step, codes += kStepCodes) {
        AddStep<V, S>(a, codes, sums);
      }
    }
    AddGroup<V, S, kKind.has_add>(chunk, tile.rows, g, at, sums, results);
  }
}

// Multiplies all rows of a tile with codes of 4 bits that stay packed: c [kRows, kPanel]. A few
// rows do not pay for unpacking into memory.
template <class V, int kRows, TileKind kKind>
[[gnu::noinline]] void PackedTile(const ExpandedChunk<V>& chunk, const TileRows& tile, float* c,
                                  int64_t ldc) {
  using S = CodeSums<V, 8, false>;
  constexpr int64_t kVector = 4 * V::kLanes, kQuads = kCodeUnit / 4;
  TileResults<V, kRows> results(c, ldc, tile.is_first);
  const std::byte* a = tile.rows.codes;
  for (int64_t g = 0; g < chunk.n_groups; ++g, a += kQuads * 4 * kRows) {
    typename V::Ints sums[kRows][2];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      sums[i][0] = sums[i][1] = S::Begin(tile.rows.starts + g * kRows + i);
    }
    const int8_t* codes = chunk.codes[g];
#pragma GCC unroll 4
    for (int64_t quad = 0; quad < kQuads / 2; ++quad) {
      AskFor(codes + 2 * quad * kVector + kCodesAhead, 2 * kVector);
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
    AddGroup<V, S, kKind.has_add>(chunk, tile.rows, g, g * kRows, sums, results);
  }
}

// kCodedRows is the most rows that are multiplied at once. Signed codes of 8 bits take twice the
// registers in AVX2.
template <class V, TileKind kKind>
inline constexpr int kCodedRows = kKeepsResults<V> || (V::kMaxRows == 6 && kKind.row_bits == 8 &&
                                                       kKind.is_signed)
                                      ? V::kMaxRows / 2
                                      : V::kMaxRows;

template <class V, int kRows, TileKind kKind, bool kAsks>
void CodedTileOf(int64_t n_rows, const ExpandedChunk<V>& chunk, const TileRows& tile, int64_t first,
                 float* c, int64_t ldc) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) {
      return CodedTileOf<V, kRows - 1, kKind, kAsks>(n_rows, chunk, tile, first, c, ldc);
    }
  }
  CodedTile<V, kRows, kKind, kAsks>(chunk, tile, first, c, ldc);
}

// Multiplies a tile, in two parts where it has more rows than there are registers.
template <class V, TileKind kKind, bool kAsks>
inline void CodedTiles(const ExpandedChunk<V>& chunk, const TileRows& tile, float* c, int64_t ldc) {
  constexpr int kMost = kCodedRows<V, kKind>;
  const int64_t n_first = tile.n > kMost ? tile.n / 2 : tile.n;
  CodedTileOf<V, kMost, kKind, kAsks>(n_first, chunk, tile, 0, c, ldc);
  if (n_first == tile.n) return;
  CodedTileOf<V, kMost, kKind, false>(tile.n - n_first, chunk, tile, n_first, c + n_first * ldc,
                                      ldc);
}

inline constexpr int64_t kPackedRows = 4;  // that multiply packed codes

template <class V, int kRows, TileKind kKind>
void PackedTileOf(const ExpandedChunk<V>& chunk, const TileRows& tile, float* c, int64_t ldc) {
  if constexpr (kRows > 1) {
    if (tile.n < kRows) return PackedTileOf<V, kRows - 1, kKind>(chunk, tile, c, ldc);
  }
  PackedTile<V, kRows, kKind>(chunk, tile, c, ldc);
}

// Walks over the panels of a product, the chunks of each, and the tiles of at most max_tile_rows
// rows that meet a chunk. Calls expand(b, n_in) with a chunk's codes, then multiply(t, rows, c)
// with the number of each tile, its rows and where its results are.
template <class V, CodeFormat kFormat, class ExpandChunk, class MultiplyTile>
[[gnu::always_inline]] inline void ForCodedTiles(const CodedProductArgs& p, int64_t max_tile_rows,
                                                 const ExpandChunk& expand,
                                                 const MultiplyTile& multiply) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  constexpr int64_t kPanel = 2 * V::kLanes;
  const auto bytes = [&](int64_t n_in) { return n_in / kShape.block * kPanel * kShape.bytes(); };
  const int64_t group_bytes = bytes(kShape.block) * kShape.group / kShape.block;
  // These are NumTiles and NextTileRows of kernels.h.
  const int64_t n_tiles = (p.n_rows + max_tile_rows - 1) / max_tile_rows;
  const int64_t n_all_groups = p.lda / kShape.group;
  for (int64_t panel = 0; panel < p.n_panels; ++panel) {
    const std::byte* b = p.b + panel * p.b_panel_bytes;
    for (int64_t k = p.k_begin; k < p.k_end; k += p.chunk) {
      const int64_t n_in = p.k_end - k < p.chunk ? p.k_end - k : p.chunk;
      expand(b + bytes(k), n_in);
      const std::byte* next =
          k + n_in < p.k_end ? b + bytes(k + n_in) : b + p.b_panel_bytes + bytes(p.k_begin);
      int64_t row = 0;
      for (int64_t t = 0; t < n_tiles; ++t) {
        const int64_t rows = (p.n_rows - row) / (n_tiles - t);
        const int64_t group = row * n_all_groups + k / kShape.group * rows;
        const int64_t code = (row * p.lda + k * rows) * kShape.row_bits / 8;
        const CodedRows a = {p.a.codes + code, p.a.scales + group, p.a.sums + group,
                             p.a.starts + group};
        multiply(t, TileRows{a, rows, k == 0, next, group_bytes},
                 p.c + row * p.ldc + panel * kPanel);
        row += rows;
      }
    }
  }
}

template <class V, CodeFormat kFormat, bool kUnpacks>
void MultiplyCoded(const CodedProductArgs& p) {
  constexpr CodeShape kShape = kCodeShapes[static_cast<int>(kFormat)];
  ExpandedChunk<V> chunk;
  ForCodedTiles<V, kFormat>(
      p, V::kMaxRows,
      [&](const std::byte* b, int64_t n_in) {
        Expand<V, kFormat, kUnpacks, !kUnpacks>(b, n_in, chunk);
      },
      [&](int64_t t, const TileRows& tile, float* c) {
        if constexpr (kShape.bits == 4 && !kUnpacks) {
          PackedTileOf<V, kPackedRows, KindOf(kShape)>(chunk, tile, c, p.ldc);
        } else if (t == 0) {
          CodedTiles<V, KindOf(kShape), true>(chunk, tile, c, p.ldc);
        } else {
          CodedTiles<V, KindOf(kShape), false>(chunk, tile, c, p.ldc);
        }
      });
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

// Calls f(Number<format>()).
template <class F>
inline void WithFormat(CodeFormat format, const F& f) {
  switch (format) {
    case CodeFormat::kInt8:
      return f(Number<static_cast<int>(CodeFormat::kInt8)>());
    case CodeFormat::kQ4_0:
      return f(Number<static_cast<int>(CodeFormat::kQ4_0)>());
    case CodeFormat::kQ4_1:
      return f(Number<static_cast<int>(CodeFormat::kQ4_1)>());
    case CodeFormat::kQ5_0:
      return f(Number<static_cast<int>(CodeFormat::kQ5_0)>());
    case CodeFormat::kQ5_1:
      return f(Number<static_cast<int>(CodeFormat::kQ5_1)>());
    case CodeFormat::kQ8_0:
      return f(Number<static_cast<int>(CodeFormat::kQ8_0)>());
    case CodeFormat::kQ4_K:
      return f(Number<static_cast<int>(CodeFormat::kQ4_K)>());
    case CodeFormat::kQ5_K:
      return f(Number<static_cast<int>(CodeFormat::kQ5_K)>());
    case CodeFormat::kQ6_K:
      return f(Number<static_cast<int>(CodeFormat::kQ6_K)>());
    case CodeFormat::kInt4:
      return f(Number<static_cast<int>(CodeFormat::kInt4)>());
  }
}

template <class V>
void MultiplyCodes(CodeFormat format, const CodedProductArgs& p) {
  WithFormat(format,
             [&](auto number) { MultiplyFormat<V, static_cast<CodeFormat>(number.value)>(p); });
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_CODED_INL_H_
