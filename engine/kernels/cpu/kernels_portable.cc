// Plain C++ for processors without AVX2: lanes in an array, which compilers turn into SSE.
#include <cstddef>

#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tables.h"
#include "engine/kernels/cpu/tile_products_inl.h"
#include "engine/kernels/cpu/tiles_emulated.h"

namespace lowkey::cpu {
namespace {

template <int kWidth>
struct PortableOf {
  static constexpr int kLanes = kWidth;
  static constexpr int kMaxRows = 4;
  static constexpr bool kTakesLanes = false;
  struct Vec {
    float v[kLanes];
  };

  template <class F>
  static Vec Map(F f) {
    Vec out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = f(i);
    return out;
  }
  static Vec Zero() { return Set1(0.0f); }
  static Vec Set1(float x) {
    return Map([&](int) { return x; });
  }
  static Vec Load(const float* p) {
    return Map([&](int i) { return p[i]; });
  }
  static Vec Load(const uint16_t* p) {
    return Map([&](int i) { return Widen(p[i]); });
  }
  static Vec Load(const int8_t* p) {
    return Map([&](int i) { return static_cast<float>(p[i]); });
  }
  static void LoadParted(const uint16_t* p, Vec* two) {
    two[0] = LoadHalf(p, 0);
    two[1] = LoadHalf(p, 1);
  }
  static void Part(Vec* two) {
    const Vec from[2] = {two[0], two[1]};
    for (int i = 0; i < 2 * kLanes; ++i) two[i % 2].v[i / 2] = from[i / kLanes].v[i % kLanes];
  }
  static void Join(Vec* two) {
    const Vec from[2] = {two[0], two[1]};
    for (int i = 0; i < 2 * kLanes; ++i) two[i / kLanes].v[i % kLanes] = from[i % 2].v[i / 2];
  }
  static void Store(float* p, const Vec& x) {
    for (int i = 0; i < kLanes; ++i) p[i] = x.v[i];
  }
  static Vec Add(const Vec& a, const Vec& b) {
    return Map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Vec Sub(const Vec& a, const Vec& b) {
    return Map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static Vec Mul(const Vec& a, const Vec& b) {
    return Map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Vec Div(const Vec& a, const Vec& b) {
    return Map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
    return Map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static void AddProduct(const Vec& a, const Vec& b, Vec& c) { c = Fma(a, b, c); }
  // Like the x86 instructions: the second operand when one is NaN.
  static Vec Max(const Vec& a, const Vec& b) {
    return Map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Vec Min(const Vec& a, const Vec& b) {
    return Map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Vec Round(const Vec& x) {
    return Map([&](int i) { return __builtin_rintf(x.v[i]); });
  }
  // Returns x * 2^n, or x where 2^n is no normal number.
  static Vec ScalePow2(const Vec& x, const Vec& n) {
    return Map([&](int i) {
      const float power = n.v[i] >= -126.0f && n.v[i] <= 127.0f ? n.v[i] : 0.0f;
      const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(power) + 127) << 23;
      float factor;
      __builtin_memcpy(&factor, &bits, sizeof(factor));
      return x.v[i] * factor;
    });
  }
  static Vec ZeroBelow(const Vec& x, const Vec& key, float low) {
    return Map([&](int i) { return key.v[i] < low ? 0.0f : x.v[i]; });
  }
  static uint32_t NotBelow(const Vec& x, const Vec& least) {
    uint32_t found = 0;
    for (int i = 0; i < kLanes; ++i) found |= (x.v[i] < least.v[i] ? 0u : 1u) << i;
    return found;
  }
  // Adds the upper half to the lower one until one number is left.
  static float Sum(Vec x) {
    for (int n = kLanes / 2; n > 0; n /= 2) {
      for (int i = 0; i < n; ++i) x.v[i] += x.v[i + n];
    }
    return x.v[0];
  }
  // out[j] += Sum(x[j]), j < 4.
  static void AddSums(const Vec* x, float* out) {
    for (int j = 0; j < 4; ++j) out[j] += Sum(x[j]);
  }
  static float ReduceMax(const Vec& x) {
    float top = x.v[0];
    for (int i = 1; i < kLanes; ++i) top = x.v[i] > top ? x.v[i] : top;
    return top;
  }
  // Return Sum(x[j]), or ReduceMax(x[j]), in lane j.
  static Vec SumOfRows(const Vec* x) {
    return Map([&](int i) { return Sum(x[i]); });
  }
  static Vec ReduceMaxOfRows(const Vec* x) {
    return Map([&](int i) { return ReduceMax(x[i]); });
  }

  static float Widen(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    __builtin_memcpy(&x, &wide, sizeof(x));
    return x;
  }
  static float WidenFloat16(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = bits & 0x7fff;
    // A factor of 2^112 sets the exponent right, also of subnormal numbers.
    uint32_t wide = rest << 13;
    float x;
    __builtin_memcpy(&x, &wide, sizeof(x));
    x *= 0x1p112f;
    __builtin_memcpy(&wide, &x, sizeof(wide));
    if (rest >= 0x7c00) wide = 0x7f800000u | (rest & 0x3ff) << 13;
    wide |= sign;
    __builtin_memcpy(&x, &wide, sizeof(x));
    return x;
  }
  static Vec LoadFloat16(const uint16_t* p) {
    return Map([&](int i) { return WidenFloat16(p[i]); });
  }

  // Sums of products of codes. A vector of a weight holds kLanes columns, each with two steps in 16
  // bits or four in 8; one of a row has 32 bits of the row everywhere.
  struct Ints {
    int32_t v[kLanes];
  };
  template <int kSide>
  struct Codes {
    int v[kLanes * kSide];
  };
  static Ints NoInts() { return {}; }
  static Codes<2> LoadPairs(const int8_t* p) {
    Codes<2> out;
    for (int i = 0; i < 2 * kLanes; ++i) out.v[i] = p[i];
    return out;
  }
  static Codes<2> SetPair(const std::byte* p) {
    int16_t pair[2];
    __builtin_memcpy(pair, p, sizeof(pair));
    Codes<2> out;
    for (int i = 0; i < 2 * kLanes; ++i) out.v[i] = pair[i % 2];
    return out;
  }
  static void AddPairs(const Codes<2>& row, const Codes<2>& weight, Ints& sum) {
    for (int i = 0; i < 2 * kLanes; ++i) sum.v[i / 2] += row.v[i] * weight.v[i];
  }
  static Codes<4> LoadQuads(const int8_t* p) {
    Codes<4> out;
    for (int i = 0; i < 4 * kLanes; ++i) out.v[i] = static_cast<uint8_t>(p[i]);
    return out;
  }
  static Codes<4> SetQuad(const std::byte* p) {
    int8_t quad[4];
    __builtin_memcpy(quad, p, sizeof(quad));
    Codes<4> out;
    for (int i = 0; i < 4 * kLanes; ++i) out.v[i] = quad[i % 4];
    return out;
  }
  static void AddQuads(const Codes<4>& row, const Codes<4>& weight, Ints& sum) {
    for (int i = 0; i < 4 * kLanes; ++i) sum.v[i / 4] += row.v[i] * weight.v[i];
  }
  static Ints BeginQuads(const int32_t* start) { return SetInts(start); }
  static Ints EndQuads(const Ints& sum, const int32_t*) { return sum; }
  static constexpr int32_t kOffsetOfSigned = 0;
  static Codes<4> LoadSignedQuads(const int8_t* p) {
    Codes<4> out;
    for (int i = 0; i < 4 * kLanes; ++i) out.v[i] = p[i];
    return out;
  }
  static void AddSignedQuads(const Codes<4>& row, const Codes<4>& weight, Ints& sum) {
    AddQuads(row, weight, sum);
  }
  struct Nibbles {
    Codes<4> low, high;
  };
  static Nibbles LoadNibbles(const int8_t* p) {
    Nibbles out;
    for (int i = 0; i < 4 * kLanes; ++i) {
      out.low.v[i] = p[i] & 15;
      out.high.v[i] = (p[i] >> 4) & 15;
    }
    return out;
  }
  template <class F>
  static Ints MapInts(F f) {
    Ints out;
    for (int i = 0; i < kLanes; ++i) out.v[i] = f(i);
    return out;
  }
  static Ints SetInts(const int32_t* p) {
    return MapInts([&](int) { return *p; });
  }
  static Ints LoadInts(const int32_t* p) {
    return MapInts([&](int i) { return p[i]; });
  }
  static Ints AddInts(const Ints& a, const Ints& b) {
    return MapInts([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Ints ShiftLeft8(const Ints& x) {
    return MapInts([&](int i) { return x.v[i] * 256; });
  }
  static Vec ToFloats(const Ints& x) {
    return Map([&](int i) { return static_cast<float>(x.v[i]); });
  }
  static Vec SmallToFloats(const Ints& x) { return ToFloats(x); }
  // a * b + c, rounded once.
  static Vec Fused(const Vec& a, const Vec& b, const Vec& c) {
    return Map([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
  }

  using Activation = float;
  using Half = Vec;
  static constexpr int kHalves = 2;
  static Half LoadHalf(const uint16_t* p, int half) {
    return Map([&](int i) { return Widen(p[2 * i + half]); });
  }
  static Half SetHalf(const float* a) { return Set1(*a); }
  static Vec FmaHalf(const Half& a, const Half& b, const Vec& c) { return Fma(a, b, c); }
};

using Portable = PortableOf<4>;

// The BF16 dot product in plain C++: what avx512_bf16 computes, up to the rounding of its sums.
template <int kWidth>
struct PortableBf16Of : PortableOf<kWidth> {
  using Base = PortableOf<kWidth>;
  using Base::Fma, Base::kLanes, Base::Load, Base::Map, Base::Set1, Base::Widen;
  using typename Base::Vec;
  using Activation = uint16_t;
  struct Half {
    Vec even, odd;
  };
  static constexpr int kHalves = 1;
  static Half LoadHalf(const uint16_t* p, int) {
    return {Base::LoadHalf(p, 0), Base::LoadHalf(p, 1)};
  }
  static Half SetHalf(const uint16_t* a) { return {Set1(Widen(a[0])), Set1(Widen(a[1]))}; }
  static Vec FmaHalf(const Half& a, const Half& b, const Vec& c) {
    return Fma(a.odd, b.odd, Fma(a.even, b.even, c));
  }
  static void StoreBf16(uint16_t* p, const Vec& x) {
    for (int i = 0; i < kLanes; ++i) p[i] = RoundToBf16(x.v[i]);
  }
  static void RoundParted(Vec* two) { Base::LoadParted(RoundRow(two).v, two); }
  struct FlushScope {};
  static Vec FlushedFma(const Vec& a, const Vec& b, const Vec& c) {
    return Map([&](int i) { return AddFlushed(a.v[i], b.v[i], c.v[i]); });
  }
  static Vec FlushedAdd(const Vec& a, const Vec& b) {
    return Map([&](int i) { return FlushToZero(FlushToZero(a.v[i]) + FlushToZero(b.v[i])); });
  }
  struct Row {
    uint16_t v[2 * kLanes];
  };
  static Row LoadRow(const uint16_t* p) {
    Row row;
    __builtin_memcpy(&row, p, sizeof(row));
    return row;
  }
  static void StoreRow(uint16_t* p, const Row& row) { __builtin_memcpy(p, &row, sizeof(row)); }
  static bool RoundsExactly(const Vec*) { return true; }
  static Row RoundRow(const Vec* two) {
    Row row;
    for (int i = 0; i < 2; ++i) StoreBf16(row.v + i * kLanes, two[i]);
    return row;
  }
  static void Interleave(const Row& even, const Row& odd, uint16_t* out) {
    for (int i = 0; i < 2 * kLanes; ++i) out[2 * i] = even.v[i], out[2 * i + 1] = odd.v[i];
  }
  static void PairRows(const Row& even, const Row& odd, Half* two) {
    for (int i = 0; i < 2; ++i) two[i] = {Load(even.v + i * kLanes), Load(odd.v + i * kLanes)};
  }
  static void PartBlocks(Vec*) {}
  static void JoinBlocks(Vec*) {}
};

}  // namespace

const KernelTable kPortableTable = Table<Portable>("portable");
const KernelTable kPortableBf16Table = Table<PortableBf16Of<4>>("portable_bf16");
const KernelTable kPortableAmxTable =
    TableWithTiles<PortableBf16Of<16>, EmulatedTiles>("portable_amx");

}  // namespace lowkey::cpu
