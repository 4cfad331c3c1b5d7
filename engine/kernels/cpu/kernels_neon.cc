// For 64-bit Arm, compiled three times: for armv8-a, with +dotprod, and with +bf16 besides.
// Everything in an anonymous namespace or templated on its vector type.
#include <arm_neon.h>

#include <cstddef>

#include "engine/kernels/cpu/kernels_inl.h"
#include "engine/kernels/cpu/tables.h"

namespace lowkey::cpu {
namespace {

struct Neon {
  using Vec = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kMaxRows = 12;  // 24 accumulators + 2 of B + 3 of A of 32 registers

  // Products by one lane of four rows' numbers, pairs or codes, in place.
  static constexpr bool kTakesLanes = true;
  static float32x4_t LoadFour(const float* p) { return vld1q_f32(p); }
  template <int kLane>
  static void AddLane(float32x4_t four, float32x4_t b, float32x4_t& c) {
    c = vfmaq_laneq_f32(c, b, four, kLane);
  }
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  static bfloat16x8_t LoadFour(const uint16_t* p) { return vreinterpretq_bf16_u16(vld1q_u16(p)); }
  template <int kLane>
  static void AddLane(bfloat16x8_t four, bfloat16x8_t b, float32x4_t& c) {
    c = vbfdotq_laneq_f32(c, b, four, kLane);
  }
#endif
  static int8x16_t LoadFour(const std::byte* p) {
    return vld1q_s8(reinterpret_cast<const int8_t*>(p));
  }
  template <int kLane>
  static void AddLane(int8x16_t four, int8x16_t weight, int32x4_t& sum) {
#ifdef __ARM_FEATURE_DOTPROD
    sum = vdotq_laneq_s32(sum, weight, four, kLane);
#else
    AddQuads(vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(four), kLane)), weight, sum);
#endif
  }

  static Vec Zero() { return vdupq_n_f32(0); }
  static Vec Set1(float x) { return vdupq_n_f32(x); }
  static Vec Load(const float* p) { return vld1q_f32(p); }
  static Vec Load(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static Vec Load(const int8_t* p) {
    int32_t four;
    __builtin_memcpy(&four, p, sizeof(four));
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
  }
  static void LoadParted(const uint16_t* p, Vec* two) {
    const uint32x4_t raw = vreinterpretq_u32_u16(vld1q_u16(p));
    two[0] = vreinterpretq_f32_u32(vshlq_n_u32(raw, 16));
    two[1] = vreinterpretq_f32_u32(vandq_u32(raw, vdupq_n_u32(0xffff0000u)));
  }
  static void Part(Vec* two) {
    const Vec low = two[0], high = two[1];
    two[0] = vuzp1q_f32(low, high);
    two[1] = vuzp2q_f32(low, high);
  }
  static void Join(Vec* two) {
    const Vec even = two[0], odd = two[1];
    two[0] = vzip1q_f32(even, odd);
    two[1] = vzip2q_f32(even, odd);
  }
  static void Store(float* p, Vec x) { vst1q_f32(p, x); }
  static Vec Add(Vec a, Vec b) { return vaddq_f32(a, b); }
  static Vec Sub(Vec a, Vec b) { return vsubq_f32(a, b); }
  static Vec Mul(Vec a, Vec b) { return vmulq_f32(a, b); }
  static Vec Div(Vec a, Vec b) { return vdivq_f32(a, b); }
  static Vec Fma(Vec a, Vec b, Vec c) { return vfmaq_f32(c, a, b); }
  static void AddProduct(Vec a, Vec b, Vec& c) { c = vfmaq_f32(c, a, b); }
  // Give the second operand when one is NaN, as elsewhere; vmaxq would give NaN.
  static Vec Max(Vec a, Vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static Vec Min(Vec a, Vec b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  static Vec Round(Vec x) { return vrndnq_f32(x); }
  static Vec ScalePow2(Vec x, Vec n) {
    const int32x4_t bits = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return vmulq_f32(x, vreinterpretq_f32_s32(bits));
  }
  static Vec ZeroBelow(Vec x, Vec key, float low) {
    const uint32x4_t below = vcltq_f32(key, vdupq_n_f32(low));
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), below));
  }
  // Returns a bit for each lane of x that is not less than `least`.
  static uint32_t NotBelow(Vec x, Vec least) {
    const uint32_t bits[kLanes] = {1, 2, 4, 8};
    return vaddvq_u32(vbicq_u32(vld1q_u32(bits), vcltq_f32(x, least)));
  }
  static float Sum(Vec x) {
    const float32x2_t halves = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(halves, 0) + vget_lane_f32(halves, 1);
  }
  // out[j] += Sum(x[j]), j < 4, in the order of Sum.
  static void AddSums(const Vec* x, float* out) {
    float sums[4];
    for (int j = 0; j < 4; ++j) sums[j] = Sum(x[j]);
    vst1q_f32(out, vaddq_f32(vld1q_f32(out), vld1q_f32(sums)));
  }
  static float ReduceMax(Vec x) {
    float lanes[kLanes];
    vst1q_f32(lanes, x);
    float top = lanes[0];
    for (int i = 1; i < kLanes; ++i) top = lanes[i] > top ? lanes[i] : top;
    return top;
  }

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  using Activation = uint16_t;
  using Half = bfloat16x8_t;
  static constexpr int kHalves = 1;
  static Half LoadHalf(const uint16_t* p, int) { return vreinterpretq_bf16_u16(vld1q_u16(p)); }
  static Half SetHalf(const uint16_t* a) {
    uint32_t pair;
    __builtin_memcpy(&pair, a, sizeof(pair));
    return vreinterpretq_bf16_u32(vdupq_n_u32(pair));
  }
  static Vec FmaHalf(Half a, Half b, Vec c) { return vbfdotq_f32(c, a, b); }
  static uint16x4_t ToBf16(Vec x) { return vreinterpret_u16_bf16(vcvt_bf16_f32(x)); }
  // Rounds to the nearest bf16, ties to even.
  static void StoreBf16(uint16_t* p, Vec x) { vst1_u16(p, ToBf16(x)); }
  // Holds 8 columns of a row.
  using Row = uint16x8_t;
  static Row LoadRow(const uint16_t* p) { return vld1q_u16(p); }
  static void StoreRow(uint16_t* p, Row row) { vst1q_u16(p, row); }
  static bool RoundsExactly(const Vec*) { return true; }
  static Row RoundRow(const Vec* two) { return vcombine_u16(ToBf16(two[0]), ToBf16(two[1])); }
  // out[2 i] = even[i] and out[2 i + 1] = odd[i], i < 8.
  static void Interleave(Row even, Row odd, uint16_t* out) {
    vst1q_u16(out, vzip1q_u16(even, odd));
    vst1q_u16(out + 8, vzip2q_u16(even, odd));
  }
  // Pairs the columns of two rows, in their order.
  static void PairRows(Row even, Row odd, Half* two) {
    two[0] = vreinterpretq_bf16_u16(vzip1q_u16(even, odd));
    two[1] = vreinterpretq_bf16_u16(vzip2q_u16(even, odd));
  }
  static void PartBlocks(Vec*) {}
  static void JoinBlocks(Vec*) {}
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
  static Vec FmaHalf(Half a, Half b, Vec c) { return Fma(a, b, c); }
#endif

  // Sums of products of codes. A vector of a weight holds kLanes columns, each with two steps in 16
  // bits or four in 8; one of a row has 32 bits of the row everywhere.
  using Ints = int32x4_t;
  static Ints NoInts() { return vdupq_n_s32(0); }
  static Ints SetBits(const std::byte* p) {
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return vdupq_n_s32(bits);
  }
  static int16x8_t LoadPairs(const int8_t* p) { return vmovl_s8(vld1_s8(p)); }
  static int16x8_t SetPair(const std::byte* p) { return vreinterpretq_s16_s32(SetBits(p)); }
  static void AddPairs(int16x8_t row, int16x8_t weight, Ints& sum) {
    const Ints low = vmull_s16(vget_low_s16(row), vget_low_s16(weight));
    const Ints high = vmull_high_s16(row, weight);
    sum = vaddq_s32(sum, vpaddq_s32(low, high));
  }
  static int8x16_t LoadQuads(const int8_t* p) { return vld1q_s8(p); }
  static int8x16_t SetQuad(const std::byte* p) { return vreinterpretq_s8_s32(SetBits(p)); }
  static void AddQuads(int8x16_t row, int8x16_t weight, Ints& sum) {
#ifdef __ARM_FEATURE_DOTPROD
    sum = vdotq_s32(sum, weight, row);
#else
    const Ints low = vpaddlq_s16(vmull_s8(vget_low_s8(row), vget_low_s8(weight)));
    const Ints high = vpaddlq_s16(vmull_high_s8(row, weight));
    sum = vaddq_s32(sum, vpaddq_s32(low, high));
#endif
  }
  static Ints SetInts(const int32_t* p) { return vdupq_n_s32(*p); }
  static Ints BeginQuads(const int32_t* start) { return SetInts(start); }
  static Ints EndQuads(Ints sum, const int32_t*) { return sum; }
  static constexpr int32_t kOffsetOfSigned = 0;
  static int8x16_t LoadSignedQuads(const int8_t* p) { return LoadQuads(p); }
  static void AddSignedQuads(int8x16_t row, int8x16_t weight, Ints& sum) {
    AddQuads(row, weight, sum);
  }
  struct Nibbles {
    int8x16_t low, high;
  };
  static Nibbles LoadNibbles(const int8_t* p) {
    const uint8x16_t both = vreinterpretq_u8_s8(vld1q_s8(p));
    return {vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))),
            vreinterpretq_s8_u8(vshrq_n_u8(both, 4))};
  }
  static Vec ToFloats(Ints x) { return vcvtq_f32_s32(x); }
  static Vec Fused(Vec a, Vec b, Vec c) { return Fma(a, b, c); }
  static Vec LoadFloat16(const uint16_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
  }
};

}  // namespace

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
const KernelTable kNeonBf16Table = Table<Neon>("neon_bf16");
#elif defined(__ARM_FEATURE_DOTPROD)
const KernelTable kNeonDotTable = Table<Neon>("neon_dot");
#else
const KernelTable kNeonTable = Table<Neon>("neon");
#endif

}  // namespace lowkey::cpu
