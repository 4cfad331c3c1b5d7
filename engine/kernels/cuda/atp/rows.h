#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_ROWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_ROWS_H_

// Vectors as blocks of atp store them. Of each kind TakePair(row, column, a, b) gives two
// neighboring numbers, from an even column on. Included by .cu files.

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

// Codes of 8 bits times a scale; of a mean also what that left, the same way.
struct CodedRow {
  const int8_t* codes;
  float scale;
  const int8_t* rest;  // nullptr: nothing
  float rest_scale;

  __device__ __forceinline__ float At(int column) const {
    const float x = scale * static_cast<float>(codes[column]);
    return rest == nullptr ? x : fmaf(rest_scale, static_cast<float>(rest[column]), x);
  }
};
__device__ __forceinline__ void TakePair(const CodedRow& row, int column, float& a, float& b) {
  a = row.At(column), b = row.At(column + 1);
}

// Where the scales of rank + 2 coded rows are: after them, so many bytes from their begin.
__device__ __forceinline__ int64_t PrincipalScalesAt(int64_t width, int64_t rank) {
  return (rank + 2) * width;
}

// Row `row` of coded K' or V': two of them are row `rank`, the mean.
__device__ __forceinline__ CodedRow PrincipalRow(const void* rows, int64_t width, int64_t rank,
                                                 int64_t row) {
  const int8_t* codes = static_cast<const int8_t*>(rows) + row * width;
  const auto* scales = reinterpret_cast<const float*>(static_cast<const int8_t*>(rows) +
                                                      PrincipalScalesAt(width, rank));
  if (row < rank) return {codes, scales[row], nullptr, 0};
  return {codes, scales[rank], codes + width, scales[rank + 1]};
}

// Number `column` of row `row` of K' or V', coded or not; row `rank` is the mean.
template <typename T>
__device__ __forceinline__ float PrincipalNumber(const AtpSequence& s, const T* rows, int64_t width,
                                                 int64_t row, int64_t column) {
  if (s.principal_bits == 0) return ToFloat(rows[row * width + column]);
  return PrincipalRow(rows, width, s.rank, row).At(static_cast<int>(column));
}

// 64 tokens of one component of U in 8 bits; its scale is in K' and V'.
__device__ __forceinline__ CodedRow CodedBasisRow(const void* u, int64_t row) {
  return {static_cast<const int8_t*>(u) + row * 64, 1.0f, nullptr, 0};
}

// The same in 4 bits. Of each 32 tokens lie in U the scales [rank], in bf16, then the codes
// [rank][16], 8 added, two tokens a byte.
struct PackedRow {
  const uint8_t* codes;
  const uint16_t* scales;
  int64_t group_bytes;
};
inline constexpr int kPackedTokens = 32;

__host__ __device__ inline int64_t PackedGroupBytes(int64_t rank) {
  return rank * (kPackedTokens / 2 + static_cast<int64_t>(sizeof(uint16_t)));
}

__device__ __forceinline__ PackedRow PackedBasisRow(const void* u, int64_t rank, int64_t page,
                                                    int64_t component) {
  const int64_t group_bytes = PackedGroupBytes(rank);
  const uint8_t* group = static_cast<const uint8_t*>(u) + 2 * page * group_bytes;
  return {group + 2 * rank + component * (kPackedTokens / 2),
          reinterpret_cast<const uint16_t*>(group) + component, group_bytes};
}

__device__ __forceinline__ void TakePair(const PackedRow& row, int column, float& a, float& b) {
  const int64_t at = column / kPackedTokens * row.group_bytes;
  const int both = row.codes[at + column % kPackedTokens / 2];
  const float scale = BFloat16ToFloat(row.scales[at / 2]);
  a = scale * static_cast<float>((both & 15) - 8), b = scale * static_cast<float>((both >> 4) - 8);
}

// A key or value that is kept in 8 bits: codes, then for every 32 scale and middle in bf16.
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

// A token's key, and then its value, of all that one KV head of a block keeps.
template <typename T>
__device__ __forceinline__ const char* KeptToken(const T* kept, const AtpSequence& s,
                                                 int64_t token) {
  return reinterpret_cast<const char*>(kept) + token * (s.kept_bytes / s.block_tokens);
}

}  // namespace lowkey::atp

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_ROWS_H_
