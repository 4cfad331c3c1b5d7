// Plain C++ for processors without AVX2: four lanes in an array, which compilers turn into SSE.
#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tables.h"

namespace lowkey::cpu {
namespace {

struct Portable {
  static constexpr int kLanes = 4;
  static constexpr int kMaxRows = 4;
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
    const Vec low = two[0], high = two[1];
    two[0] = {{low.v[0], low.v[2], high.v[0], high.v[2]}};
    two[1] = {{low.v[1], low.v[3], high.v[1], high.v[3]}};
  }
  static void Join(Vec* two) {
    const Vec even = two[0], odd = two[1];
    two[0] = {{even.v[0], odd.v[0], even.v[1], odd.v[1]}};
    two[1] = {{even.v[2], odd.v[2], even.v[3], odd.v[3]}};
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
  static Vec ScalePow2(const Vec& x, const Vec& n) {
    return Map([&](int i) {
      const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n.v[i]) + 127) << 23;
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
  static float Sum(const Vec& x) { return (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]); }
  // out[j] += Sum(x[j]), j < 4.
  static void AddSums(const Vec* x, float* out) {
    for (int j = 0; j < 4; ++j) out[j] += Sum(x[j]);
  }
  static float ReduceMax(const Vec& x) {
    float top = x.v[0];
    for (int i = 1; i < kLanes; ++i) top = x.v[i] > top ? x.v[i] : top;
    return top;
  }

  static float Widen(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    __builtin_memcpy(&x, &wide, sizeof(x));
    return x;
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

// The BF16 dot product in plain C++: what avx512_bf16 computes, up to the rounding of its sums.
struct PortableBf16 : Portable {
  using Activation = uint16_t;
  struct Half {
    Vec even, odd;
  };
  static constexpr int kHalves = 1;
  static Half LoadHalf(const uint16_t* p, int) {
    return {Portable::LoadHalf(p, 0), Portable::LoadHalf(p, 1)};
  }
  static Half SetHalf(const uint16_t* a) { return {Set1(Widen(a[0])), Set1(Widen(a[1]))}; }
  static Vec FmaHalf(const Half& a, const Half& b, const Vec& c) {
    return Fma(a.odd, b.odd, Fma(a.even, b.even, c));
  }
};

}  // namespace

const KernelTable kPortableTable = Table<Portable>("portable");
const KernelTable kPortableBf16Table = Table<PortableBf16>("portable_bf16");

}  // namespace lowkey::cpu
