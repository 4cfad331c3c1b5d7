// Compiled with -mavx2 -mfma -mf16c. Everything in an anonymous namespace or templated on its
// vector type.
#include <immintrin.h>

#include <cstddef>

#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tables.h"

namespace lowkey::cpu {
namespace {

struct Avx2 {
  using Vec = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kMaxRows = 6;  // 12 accumulators + 2 of B + 1 of A fill 15 of 16 registers
  static constexpr bool kTakesLanes = false;

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

  // Sums of products of codes. A vector of a weight holds kLanes columns, each with two steps in 16
  // bits or four in 8; one of a row has 32 bits of the row everywhere. Products are added in place,
  // and for the same reason as AddProduct's.
  using Ints = __m256i;
  static Ints NoInts() { return _mm256_setzero_si256(); }
  static Ints SetBits(const std::byte* p) {
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return _mm256_set1_epi32(bits);
  }
  static Ints LoadPairs(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static Ints SetPair(const std::byte* p) { return SetBits(p); }
  static void AddPairs(Ints row, Ints weight, Ints& sum) {
    Ints product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
        : "+x"(sum), "=&x"(product)
        : "x"(row), "x"(weight));
  }
  // The weight's codes are 0 to 15: the sums of 32 steps fit in 16 bits.
  static Ints LoadQuads(const int8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static Ints SetQuad(const std::byte* p) { return SetBits(p); }
  static void AddQuads(Ints row, Ints weight, Ints& sum) {
    Ints product;
    asm("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0"
        : "+x"(sum), "=&x"(product)
        : "x"(row), "x"(weight));
  }
  static Ints BeginQuads(const int32_t*) { return NoInts(); }
  static Ints EndQuads(Ints sum, const int32_t* start) {
    const Ints total = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    return _mm256_add_epi32(total, _mm256_set1_epi32(*start));
  }
  static constexpr int32_t kOffsetOfSigned = 0;
  struct SignedQuads {
    Ints magnitudes, codes;
  };
  static SignedQuads LoadSignedQuads(const int8_t* p) {
    const Ints codes = LoadQuads(p);
    return {_mm256_abs_epi8(codes), codes};
  }
  // Two products of magnitudes of at most 128 and 127 fit in 16 bits.
  static void AddSignedQuads(Ints row, const SignedQuads& weight, Ints& sum) {
    const Ints signs = _mm256_sign_epi8(row, weight.codes);
    AddPairs(_mm256_maddubs_epi16(weight.magnitudes, signs), _mm256_set1_epi16(1), sum);
  }
  struct Nibbles {
    Ints low, high;
  };
  static Nibbles LoadNibbles(const int8_t* p) {
    const Ints both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const Ints mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(both, mask), _mm256_and_si256(_mm256_srli_epi16(both, 4), mask)};
  }
  static Vec ToFloats(Ints x) { return _mm256_cvtepi32_ps(x); }
  static Vec Fused(Vec a, Vec b, Vec c) { return Fma(a, b, c); }
  static Vec LoadFloat16(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
};

}  // namespace

const KernelTable kAvx2Table = Table<Avx2>("avx2");

}  // namespace lowkey::cpu
