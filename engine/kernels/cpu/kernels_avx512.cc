// Compiled four times: with -mavx512f -mavx512bw -mfma, with -mavx512vnni besides, with
// -mavx512bf16 besides both, and with -DLOWKEY_AMX besides all. Everything in an anonymous
// namespace or templated on its vector type.
#include <immintrin.h>

#include <cstddef>

#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tables.h"
#ifdef LOWKEY_AMX
#include "engine/kernels/cpu/tile_products_inl.h"
#include "engine/kernels/cpu/tiles_x86.h"
#endif

namespace lowkey::cpu {
namespace {

struct Avx512 {
  using Vec = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kMaxRows = 12;  // 24 accumulators + 2 of B + 1 of A of 32 registers
  static constexpr bool kTakesLanes = false;

  static Vec Zero() { return _mm512_setzero_ps(); }
  static Vec Set1(float x) { return _mm512_set1_ps(x); }
  static Vec Load(const float* p) { return _mm512_loadu_ps(p); }
  static Vec Load(const uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static Vec Load(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  static void LoadParted(const uint16_t* p, Vec* two) { Widen(_mm512_loadu_si512(p), two); }
  static void Widen(__m512i raw, Vec* two) {
    two[0] = _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16));
    two[1] = _mm512_castsi512_ps(_mm512_and_si512(raw, _mm512_set1_epi32(-65536)));
  }
  static void Part(Vec* two) {
    const Vec low = two[0], high = two[1];
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    two[0] = _mm512_permutex2var_ps(low, even, high);
    two[1] = _mm512_permutex2var_ps(low, _mm512_or_si512(even, _mm512_set1_epi32(1)), high);
  }
  static void Join(Vec* two) {
    const Vec even = two[0], odd = two[1];
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    two[0] = _mm512_permutex2var_ps(even, low, odd);
    two[1] = _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd);
  }
  static void Store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
  static Vec Add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  static Vec Sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
  static Vec Mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
  static Vec Div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
  static Vec Fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
  // c += a * b in place: left to itself GCC moves accumulators between registers and the stack.
  static void AddProduct(Vec a, Vec b, Vec& c) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  }
  static Vec Max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static Vec Min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
  static Vec Round(Vec x) { return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT); }
  static Vec ScalePow2(Vec x, Vec n) { return _mm512_scalef_ps(x, n); }
  static Vec ZeroBelow(Vec x, Vec key, float low) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(key, _mm512_set1_ps(low), _CMP_NLT_UQ), x);
  }
  static uint32_t NotBelow(Vec x, Vec least) { return _mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ); }
  static float Sum(Vec x) { return _mm512_reduce_add_ps(x); }
  // out[j] += Sum(x[j]), j < 4.
  static void AddSums(const Vec* x, float* out) {
    for (int j = 0; j < 4; ++j) out[j] += Sum(x[j]);
  }
  static float ReduceMax(Vec x) { return _mm512_reduce_max_ps(x); }
  // Returns f(x[j]) in lane j, j < 16, where f is Sum, or ReduceMax.
  static Vec SumOfRows(const Vec* x) {
    return ReduceRows(x, [](Vec a, Vec b) { return Add(a, b); });
  }
  static Vec ReduceMaxOfRows(const Vec* x) {
    return ReduceRows(x, [](Vec a, Vec b) { return Max(a, b); });
  }
  // Joins halves of each row, then quarters and so on, as the reductions of one row do.
  template <class Join>
  static Vec ReduceRows(const Vec* x, const Join& join) {
    Vec halves[8], quarters[4], pairs[2];
    for (int j = 0; j < 8; ++j) {
      const Vec a = x[j], b = x[j + 8];
      halves[j] = join(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(1, 0, 1, 0)),
                       _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
    }
    // In groups of four lanes: rows j, j + 8, j + 4, j + 12.
    for (int j = 0; j < 4; ++j) {
      const Vec a = halves[j], b = halves[j + 4];
      quarters[j] = join(_mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm512_shuffle_f32x4(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
    }
    // In each group: two lanes of its row, and two of the row two further on.
    for (int j = 0; j < 2; ++j) {
      const Vec a = quarters[j], b = quarters[j + 2];
      pairs[j] = join(_mm512_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 1, 0)),
                      _mm512_shuffle_ps(a, b, _MM_SHUFFLE(3, 2, 3, 2)));
    }
    const Vec all = join(_mm512_shuffle_ps(pairs[0], pairs[1], _MM_SHUFFLE(2, 0, 2, 0)),
                         _mm512_shuffle_ps(pairs[0], pairs[1], _MM_SHUFFLE(3, 1, 3, 1)));
    const __m512i lanes = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    return _mm512_permutexvar_ps(lanes, all);
  }

#ifdef __AVX512BF16__
  using Activation = uint16_t;
  using Half = __m512bh;
  static constexpr int kHalves = 1;
  static Half LoadHalf(const uint16_t* p, int) {
    return reinterpret_cast<Half>(_mm512_loadu_si512(p));
  }
  static Half SetHalf(const uint16_t* a) {
    int32_t pair;
    __builtin_memcpy(&pair, a, sizeof(pair));
    return reinterpret_cast<Half>(_mm512_set1_epi32(pair));
  }
  static Vec FmaHalf(Half a, Half b, Vec c) { return _mm512_dpbf16_ps(c, a, b); }
  // Rounds to the nearest bf16, ties to even.
  static void StoreBf16(uint16_t* p, Vec x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
  }
  // Rounds 32 numbers to bf16: first the even ones, then the odd ones.
  static void RoundParted(Vec* two) {
    Widen(reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(two[1], two[0])), two);
  }
  // Numbers that are not normal count as zero while an object lives.
  class FlushScope {
   public:
    FlushScope() { _mm_setcsr(before_ | 0x8040); }
    ~FlushScope() { _mm_setcsr(before_); }
    FlushScope(const FlushScope&) = delete;
    FlushScope& operator=(const FlushScope&) = delete;

   private:
    const unsigned before_ = _mm_getcsr();
  };
  static Vec FlushedFma(Vec a, Vec b, Vec c) { return Fma(a, b, c); }
  static Vec FlushedAdd(Vec a, Vec b) { return Add(a, b); }
  // Holds 32 columns of a row.
  using Row = __m512i;
  static Row LoadRow(const uint16_t* p) { return _mm512_loadu_si512(p); }
  static void StoreRow(uint16_t* p, Row row) { _mm512_storeu_si512(p, row); }
  static Row RoundRow(const Vec* two) {
    return reinterpret_cast<Row>(_mm512_cvtne2ps_pbh(two[1], two[0]));
  }
  // Says whether no number is subnormal: RoundRow takes those for zero.
  static bool RoundsExactly(const Vec* two) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), one = _mm512_set1_epi32(1);
    const auto subnormal = [&](Vec x) {
      const __m512i less_one =
          _mm512_sub_epi32(_mm512_and_si512(_mm512_castps_si512(x), magnitude), one);
      return _mm512_cmplt_epu32_mask(less_one, _mm512_set1_epi32(0x7fffff));
    };
    return _mm512_kortestz(subnormal(two[0]), subnormal(two[1])) != 0;
  }
  // out[2 i] = even[i] and out[2 i + 1] = odd[i], i < 32.
  static void Interleave(Row even, Row odd, uint16_t* out) {
    // The low halves of both, then the high ones, as words that are widened and joined.
    const auto join = [](__m256i low, __m256i high) {
      return _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                             _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
    };
    _mm512_storeu_si512(out, join(_mm512_castsi512_si256(even), _mm512_castsi512_si256(odd)));
    _mm512_storeu_si512(
        out + 32, join(_mm512_extracti64x4_epi64(even, 1), _mm512_extracti64x4_epi64(odd, 1)));
  }
  // Pairs the columns of two rows: blocks of four columns, first the even blocks, then the odd
  // ones.
  static void PairRows(Row even, Row odd, Half* two) {
    two[0] = reinterpret_cast<Half>(_mm512_unpacklo_epi16(even, odd));
    two[1] = reinterpret_cast<Half>(_mm512_unpackhi_epi16(even, odd));
  }
  // Brings 32 columns into that order, and back.
  static void PartBlocks(Vec* two) {
    const Vec low = two[0], high = two[1];
    two[0] = _mm512_shuffle_f32x4(low, high, _MM_SHUFFLE(2, 0, 2, 0));
    two[1] = _mm512_shuffle_f32x4(low, high, _MM_SHUFFLE(3, 1, 3, 1));
  }
  static void JoinBlocks(Vec* two) {
    const Vec low = _mm512_shuffle_f32x4(two[0], two[1], _MM_SHUFFLE(1, 0, 1, 0));
    const Vec high = _mm512_shuffle_f32x4(two[0], two[1], _MM_SHUFFLE(3, 2, 3, 2));
    two[0] = _mm512_shuffle_f32x4(low, low, _MM_SHUFFLE(3, 1, 2, 0));
    two[1] = _mm512_shuffle_f32x4(high, high, _MM_SHUFFLE(3, 1, 2, 0));
  }
#else
  using Activation = float;
  using Half = Vec;
  static constexpr int kHalves = 2;
  static Half LoadHalf(const uint16_t* p, int half) {
    Vec two[2];
    LoadParted(p, two);
    return two[half];
  }
  static Half SetHalf(const float* a) { return Set1(*a); }
  static Vec FmaHalf(Half a, Half b, Vec c) {
    AddProduct(a, b, c);
    return c;
  }
#endif

  // Sums of products of codes: see kernels_avx2.cc.
  using Ints = __m512i;
  static Ints NoInts() { return _mm512_setzero_si512(); }
  static Ints SetBits(const std::byte* p) {
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return _mm512_set1_epi32(bits);
  }
  static Ints LoadPairs(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Ints SetPair(const std::byte* p) { return SetBits(p); }
  static Ints LoadQuads(const int8_t* p) { return _mm512_loadu_si512(p); }
  static Ints SetQuad(const std::byte* p) { return SetBits(p); }
  static Ints SetInts(const int32_t* p) { return _mm512_set1_epi32(*p); }
#ifdef __AVX512VNNI__
  static void AddPairs(Ints row, Ints weight, Ints& sum) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(row), "v"(weight));
  }
  static void AddQuads(Ints row, Ints weight, Ints& sum) {
    asm("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"(row), "v"(weight));
  }
  static Ints BeginQuads(const int32_t* start) { return SetInts(start); }
  static Ints EndQuads(Ints sum, const int32_t*) { return sum; }
  // vpdpbusd takes a weight's codes without a sign: 128 more than they are.
  static constexpr int32_t kOffsetOfSigned = 128;
  static Ints LoadSignedQuads(const int8_t* p) {
    return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128));
  }
  static void AddSignedQuads(Ints row, Ints weight, Ints& sum) { AddQuads(row, weight, sum); }
#else
  static void AddPairs(Ints row, Ints weight, Ints& sum) {
    Ints product;
    asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
        : "+v"(sum), "=&v"(product)
        : "v"(row), "v"(weight));
  }
  // The weight's codes are 0 to 15: the sums of 32 steps fit in 16 bits.
  static void AddQuads(Ints row, Ints weight, Ints& sum) {
    Ints product;
    asm("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0"
        : "+v"(sum), "=&v"(product)
        : "v"(row), "v"(weight));
  }
  static Ints BeginQuads(const int32_t*) { return NoInts(); }
  static Ints EndQuads(Ints sum, const int32_t* start) {
    return _mm512_add_epi32(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)), SetInts(start));
  }
  static constexpr int32_t kOffsetOfSigned = 0;
  struct SignedQuads {
    Ints magnitudes;
    __mmask64 negative;
  };
  static SignedQuads LoadSignedQuads(const int8_t* p) {
    const Ints codes = _mm512_loadu_si512(p);
    return {_mm512_abs_epi8(codes), _mm512_movepi8_mask(codes)};
  }
  // Two products of magnitudes of at most 128 and 127 fit in 16 bits.
  static void AddSignedQuads(Ints row, const SignedQuads& weight, Ints& sum) {
    const Ints signs = _mm512_mask_sub_epi8(row, weight.negative, NoInts(), row);
    AddPairs(_mm512_maddubs_epi16(weight.magnitudes, signs), _mm512_set1_epi16(1), sum);
  }
#endif
  struct Nibbles {
    Ints low, high;
  };
  static Nibbles LoadNibbles(const int8_t* p) {
    const Ints both = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
    return {_mm512_and_si512(both, mask), _mm512_and_si512(_mm512_srli_epi16(both, 4), mask)};
  }
  static Ints LoadInts(const int32_t* p) { return _mm512_loadu_si512(p); }
  static Ints AddInts(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  static Ints ShiftLeft8(Ints x) { return _mm512_slli_epi32(x, 8); }
  static Vec ToFloats(Ints x) { return _mm512_cvtepi32_ps(x); }
  // Takes magnitudes below 2^22. Beside a matrix unit the processor adds two vectors in a cycle,
  // but converts only one.
  static Vec SmallToFloats(Ints x) {
    const Ints shifted = _mm512_add_epi32(x, _mm512_set1_epi32(0x4b400000));  // 1.5 x 2^23
    return Sub(_mm512_castsi512_ps(shifted), Set1(0x1.8p23f));
  }
  static Vec Fused(Vec a, Vec b, Vec c) { return Fma(a, b, c); }
  // Joins the eight lanes of each of eight rows of integers; row j's result is in lane j.
  template <class Join>
  static __m256i ReduceEight(const __m256i* y, const Join& join) {
    __m256i halves[4], quarters[2];
    for (int j = 0; j < 4; ++j) {
      halves[j] = join(_mm256_permute2x128_si256(y[j], y[j + 4], 0x20),
                       _mm256_permute2x128_si256(y[j], y[j + 4], 0x31));
    }
    for (int j = 0; j < 2; ++j) {
      quarters[j] = join(_mm256_unpacklo_epi64(halves[j], halves[j + 2]),
                         _mm256_unpackhi_epi64(halves[j], halves[j + 2]));
    }
    const __m256 a = _mm256_castsi256_ps(quarters[0]), b = _mm256_castsi256_ps(quarters[1]);
    const __m256i all = join(_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)),
                             _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd)));
    return _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7));
  }
  static __m256i UpperHalf(Ints x) { return _mm512_extracti64x4_epi64(x, 1); }
  // Codes eight groups of 32 numbers as CodeGroup does; false if one of them has no largest
  // magnitude between 1e-30 and infinity.
  static bool CodeEight(const float* x, int8_t* codes, float* scales, int32_t* totals) {
    const auto larger = [](__m256i a, __m256i b) { return _mm256_max_epu32(a, b); };
    const auto add = [](__m256i a, __m256i b) { return _mm256_add_epi32(a, b); };
    const Ints magnitude = _mm512_set1_epi32(0x7fffffff);
    __m256i rows[8];
    for (int g = 0; g < 8; ++g) {
      const Ints top =
          _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + 32 * g), magnitude),
                           _mm512_and_si512(_mm512_loadu_si512(x + 32 * g + 16), magnitude));
      rows[g] = larger(_mm512_castsi512_si256(top), UpperHalf(top));
    }
    const __m256i largest = ReduceEight(rows, larger);
    const __m256i odd =
        _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(0x0da24260), largest),  // 1e-30
                        _mm256_cmpgt_epi32(largest, _mm256_set1_epi32(0x7f7fffff)));
    if (_mm256_movemask_epi8(odd) != 0) return false;
    const __m256 top = _mm256_castsi256_ps(largest), most = _mm256_set1_ps(127);
    _mm256_storeu_ps(scales, _mm256_div_ps(top, most));
    float inverses[8];
    _mm256_storeu_ps(inverses, _mm256_div_ps(most, top));
    for (int g = 0; g < 8; ++g) {
      // Adding 1.5 x 2^23 leaves the rounded number in the low bits.
      Ints bits[2];
      for (int h = 0; h < 2; ++h) {
        bits[h] = _mm512_castps_si512(
            Add(Mul(Load(x + 32 * g + 16 * h), Set1(inverses[g])), Set1(0x1.8p23f)));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 32 * g + 16 * h),
                         _mm512_cvtepi32_epi8(bits[h]));
      }
      const Ints sum = AddInts(bits[0], bits[1]);
      rows[g] = add(_mm512_castsi512_si256(sum), UpperHalf(sum));
    }
    // 32 times the integer 0x4b400000 is too much, modulo 2^32.
    const __m256i total = _mm256_sub_epi32(ReduceEight(rows, add), _mm256_set1_epi32(0x68000000));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(totals), total);
    return true;
  }
  static Vec LoadFloat16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
};

}  // namespace

#ifdef LOWKEY_AMX
const KernelTable kAmxTable = TableWithTiles<Avx512, X86Tiles>("amx");
#elif defined(__AVX512BF16__)
const KernelTable kAvx512Bf16Table = Table<Avx512>("avx512_bf16");
#elif defined(__AVX512VNNI__)
const KernelTable kAvx512VnniTable = Table<Avx512>("avx512_vnni");
#else
const KernelTable kAvx512Table = Table<Avx512>("avx512");
#endif

}  // namespace lowkey::cpu
