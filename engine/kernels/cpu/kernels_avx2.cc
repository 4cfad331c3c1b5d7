// Compiled with -mavx2 -mfma. Everything in an anonymous namespace or templated on its vector type.
#include <immintrin.h>

#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tables.h"

namespace lowkey::cpu {
namespace {

struct Avx2 {
  using Vec = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kMaxRows = 6;  // 12 accumulators + 2 of B + 1 of A fill 15 of 16 registers

  static Vec Zero() { return _mm256_setzero_ps(); }
  static Vec Set1(float x) { return _mm256_set1_ps(x); }
  static Vec Load(const float* p) { return _mm256_loadu_ps(p); }
  static Vec Load(const uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static Vec Load(const int8_t* p) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
  static void LoadParted(const uint16_t* p, Vec* two) {
    two[0] = LoadHalf(p, 0);
    two[1] = LoadHalf(p, 1);
  }
  static void Part(Vec* two) {
    const Vec even = _mm256_shuffle_ps(two[0], two[1], 0x88);
    const Vec odd = _mm256_shuffle_ps(two[0], two[1], 0xdd);
    two[0] = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
    two[1] = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
  }
  static void Join(Vec* two) {
    const Vec low = _mm256_unpacklo_ps(two[0], two[1]), high = _mm256_unpackhi_ps(two[0], two[1]);
    two[0] = _mm256_permute2f128_ps(low, high, 0x20);
    two[1] = _mm256_permute2f128_ps(low, high, 0x31);
  }
  static void Store(float* p, Vec x) { _mm256_storeu_ps(p, x); }
  static Vec Add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
  static Vec Sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
  static Vec Div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
  static Vec Fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
  // c += a * b in place: left to itself GCC moves accumulators between registers and the stack.
  static void AddProduct(Vec a, Vec b, Vec& c) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  }
  static Vec Max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
  static Vec Min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
  static Vec Round(Vec x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static Vec ScalePow2(Vec x, Vec n) {
    const __m256i bits =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(bits));
  }
  static Vec ZeroBelow(Vec x, Vec key, float low) {
    return _mm256_andnot_ps(_mm256_cmp_ps(key, _mm256_set1_ps(low), _CMP_LT_OQ), x);
  }
  // Returns a bit for each lane of x that is not less than `least`.
  static uint32_t NotBelow(Vec x, Vec least) {
    return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, least, _CMP_NLT_UQ)));
  }
  static float Sum(Vec x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  // out[j] += Sum(x[j]), j < 4, in the order of Sum.
  static void AddSums(const Vec* x, float* out) {
    __m128 s[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      s[j] = _mm_add_ps(_mm256_castps256_ps128(x[j]), _mm256_extractf128_ps(x[j], 1));
    }
    _MM_TRANSPOSE4_PS(s[0], s[1], s[2], s[3]);
    const __m128 sums = _mm_add_ps(_mm_add_ps(s[0], s[2]), _mm_add_ps(s[1], s[3]));
    _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), sums));
  }
  static float ReduceMax(Vec x) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }

  using Activation = float;
  using Half = Vec;
  static constexpr int kHalves = 2;
  static Half LoadHalf(const uint16_t* p, int half) {
    const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm256_castsi256_ps(half == 0 ? _mm256_slli_epi32(raw, 16)
                                         : _mm256_and_si256(raw, _mm256_set1_epi32(-65536)));
  }
  static Half SetHalf(const float* a) { return Set1(*a); }
  static Vec FmaHalf(Half a, Half b, Vec c) {
    AddProduct(a, b, c);
    return c;
  }
};

}  // namespace

const KernelTable kAvx2Table = Table<Avx2>("avx2");

}  // namespace lowkey::cpu
