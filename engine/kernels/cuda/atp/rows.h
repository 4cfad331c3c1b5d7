#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_ROWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_ROWS_H_

// Vectors in the forms that blocks of atp store. For each form TakePair(row, column, a, b) gives
// two neighboring numbers, from an even column on. Included by .cu files.

#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/device/atp.h"

namespace lowkey::atp {

__device__ __forceinline__ void TakePair(const float* row, int column, float& a, float& b) {
  a = row[column], b = row[column + 1];
}
__device__ __forceinline__ void TakePair(const uint16_t* row, int column, float& a, float& b) {
  struct alignas(4) Two {
    uint16_t x[2];
  };
  const Two two = *reinterpret_cast<const Two*>(row + column);
  a = BFloat16ToFloat(two.x[0]), b = BFloat16ToFloat(two.x[1]);
}

// A vector of codes of 8 bits times a scale. A mean also has the rest that the first codes left.
struct CodedVector {
  const int8_t* codes;
  float scale;
  const int8_t* rest;  // nullptr: no rest
  float rest_scale;

  __device__ __forceinline__ float At(int column) const {
    const float x = scale * static_cast<float>(codes[column]);
    return rest == nullptr ? x : fmaf(rest_scale, static_cast<float>(rest[column]), x);
  }
};
__device__ __forceinline__ void TakePair(const CodedVector& row, int column, float& a, float& b) {
  a = row.At(column), b = row.At(column + 1);
}

// Returns where the scales of rank + 2 coded rows are, in bytes from the first row.
__device__ __forceinline__ int64_t PrincipalScalesAt(int64_t width, int64_t rank) {
  return (rank + 2) * width;
}

// Returns row `row` of coded K' or V'. Row `rank`, the mean, is stored as two rows.
__device__ __forceinline__ CodedVector PrincipalRow(const void* rows, int64_t width, int64_t rank,
                                                    int64_t row) {
  const int8_t* codes = static_cast<const int8_t*>(rows) + row * width;
  const auto* scales = reinterpret_cast<const float*>(static_cast<const int8_t*>(rows) +
                                                      PrincipalScalesAt(width, rank));
  if (row < rank) return {codes, scales[row], nullptr, 0};
  return {codes, scales[rank], codes + width, scales[rank + 1]};
}

// Returns number `column` of row `row` of K' or V', coded or not; row `rank` is the mean.
template <typename T>
__device__ __forceinline__ float PrincipalNumber(const AtpSequence& s, const T* rows, int64_t width,
                                                 int64_t row, int64_t column) {
  if (s.principal_bits == 0) return ToFloat(rows[row * width + column]);
  return PrincipalRow(rows, width, s.rank, row).At(static_cast<int>(column));
}

// Returns 64 tokens of one component of U in 8 bits; K' and V' contain the scale.
__device__ __forceinline__ CodedVector CodedBasisRow(const void* u, int64_t row) {
  return {static_cast<const int8_t*>(u) + row * 64, 1.0f, nullptr, 0};
}

// 64 tokens of one component of U in 4 bits. For every 32 tokens U has the scales [rank] in bf16,
// then the codes [rank][16], 8 added, two tokens a byte.
struct PackedVector {
  const uint8_t* codes;
  const uint16_t* scales;
  int64_t group_bytes;
};
inline constexpr int kPackedTokens = 32;

__host__ __device__ inline int64_t PackedGroupBytes(int64_t rank) {
  return rank * (kPackedTokens / 2 + static_cast<int64_t>(sizeof(uint16_t)));
}

__device__ __forceinline__ PackedVector PackedBasisRow(const void* u, int64_t rank, int64_t page,
                                                       int64_t component) {
  const int64_t group_bytes = PackedGroupBytes(rank);
  const uint8_t* group = static_cast<const uint8_t*>(u) + 2 * page * group_bytes;
  return {group + 2 * rank + component * (kPackedTokens / 2),
          reinterpret_cast<const uint16_t*>(group) + component, group_bytes};
}

__device__ __forceinline__ void TakePair(const PackedVector& row, int column, float& a, float& b) {
  const int64_t at = column / kPackedTokens * row.group_bytes;
  const int both = row.codes[at + column % kPackedTokens / 2];
  const float scale = BFloat16ToFloat(row.scales[at / 2]);
  a = scale * static_cast<float>((both & 15) - 8), b = scale * static_cast<float>((both >> 4) - 8);
}

// A key or value in 8 bits: codes, then a scale and a middle in bf16 for every 32 codes.
struct KeptNumbers {
  const int8_t* codes;
  const uint16_t* numbers;
};
inline constexpr int kKeptGroup = 32;

__host__ __device__ inline int64_t KeptRowBytes(int64_t width) {
  return width + (width + kKeptGroup - 1) / kKeptGroup * 4;
}

__device__ __forceinline__ KeptNumbers KeptRow(const char* row, int64_t width) {
  return {reinterpret_cast<const int8_t*>(row), reinterpret_cast<const uint16_t*>(row + width)};
}

__device__ __forceinline__ void TakePair(const KeptNumbers& row, int column, float& a, float& b) {
  const uint16_t* numbers = row.numbers + column / kKeptGroup * 2;
  const float scale = BFloat16ToFloat(numbers[0]), middle = BFloat16ToFloat(numbers[1]);
  a = fmaf(scale, static_cast<float>(row.codes[column]), middle);
  b = fmaf(scale, static_cast<float>(row.codes[column + 1]), middle);
}

// Returns a token's key, which its value follows, in the tokens that one KV head of a block keeps.
template <typename T>
__device__ __forceinline__ const char* KeptToken(const T* kept, const AtpSequence& s,
                                                 int64_t token) {
  return reinterpret_cast<const char*>(kept) + token * (s.kept_bytes / s.block_tokens);
}

}  // namespace lowkey::atp

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_ROWS_H_
