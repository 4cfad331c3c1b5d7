// This is tiles_x86.h in plain C++, with the same bits.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_TILES_EMULATED_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TILES_EMULATED_H_

#include <cstdint>

namespace lowkey::cpu {
namespace {

// Returns what a matrix unit takes a number for: one that is not normal counts as zero.
inline float FlushToZero(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

// Returns a * b + c, rounded once, where a and b have at most 8 significant bits: their product is
// exact unless it leaves the range of normal numbers.
inline float AddFlushed(float a, float b, float c) {
  const float x = FlushToZero(a), y = FlushToZero(b), product = x * y;
  const float magnitude = __builtin_fabsf(product);
  const bool is_exact =
      (magnitude >= 0x1p-126f && magnitude <= 0x1.fffffep127f) || x == 0 || y == 0;
  return FlushToZero(is_exact ? product + c : __builtin_fmaf(x, y, c));
}

class EmulatedTiles {
 public:
  void Configure(int64_t rows, int64_t row_bytes) {
    if (rows == rows_ && row_bytes == row_bytes_) return;
    rows_ = rows;
    row_bytes_ = row_bytes;
    for (Tile& tile : tiles_) tile = {};
  }
  template <int kTile>
  void Zero() {
    tiles_[kTile] = {};
  }
  template <int kTile>
  void Load(const void* p, int64_t stride) {
    Zero<kTile>();
    for (int64_t r = 0; r < RowsOf(kTile); ++r) {
      __builtin_memcpy(tiles_[kTile].bytes[r], static_cast<const uint8_t*>(p) + r * stride,
                       static_cast<size_t>(BytesOf(kTile)));
    }
  }
  template <int kTile>
  void Store(void* p, int64_t stride) {
    for (int64_t r = 0; r < RowsOf(kTile); ++r) {
      __builtin_memcpy(static_cast<uint8_t*>(p) + r * stride, tiles_[kTile].bytes[r], 64);
    }
  }
  // For each sum the products of even steps are added in order from zero, those of odd steps too,
  // then both together, and the sum gets that (Intel's manual, TDPBF16PS).
  template <int kSum, int kRows, int kColumns>
  void AddPairs() {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int column = 0; column < 16; ++column) {
        float even = 0, odd = 0;
        for (int pair = 0; pair < row_bytes_ / 4; ++pair) {
          even = AddFlushed(Pair(kRows, r, pair, 0), Pair(kColumns, pair, column, 0), even);
          odd = AddFlushed(Pair(kRows, r, pair, 1), Pair(kColumns, pair, column, 1), odd);
        }
        float sum;
        uint8_t* at = tiles_[kSum].bytes[r] + 4 * column;
        __builtin_memcpy(&sum, at, sizeof(sum));
        sum = FlushToZero(FlushToZero(sum) + FlushToZero(even + odd));
        __builtin_memcpy(at, &sum, sizeof(sum));
      }
    }
  }

  template <int kSum, int kRows, int kColumns>
  void AddSigned() {
    AddBytes<kSum, kRows, kColumns, int8_t>();
  }
  template <int kSum, int kRows, int kColumns>
  void AddUnsigned() {
    AddBytes<kSum, kRows, kColumns, uint8_t>();
  }

 private:
  struct Tile {
    uint8_t bytes[16][64];
  };
  int64_t RowsOf(int tile) const { return tile < 6 ? rows_ : row_bytes_ / 4; }
  int64_t BytesOf(int tile) const { return tile == 4 || tile == 5 ? row_bytes_ : 64; }
  template <int kSum, int kRows, int kColumns, class Left>
  void AddBytes() {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int column = 0; column < 16; ++column) {
        uint8_t* at = tiles_[kSum].bytes[r] + 4 * column;
        int32_t sum;
        __builtin_memcpy(&sum, at, sizeof(sum));
        for (int64_t k = 0; k < row_bytes_; ++k) {
          const auto right = static_cast<int8_t>(tiles_[kColumns].bytes[k / 4][4 * column + k % 4]);
          sum += static_cast<Left>(tiles_[kRows].bytes[r][k]) * right;
        }
        __builtin_memcpy(at, &sum, sizeof(sum));
      }
    }
  }
  // Returns number `half` of a pair of bf16.
  float Pair(int tile, int64_t row, int pair, int half) const {
    uint16_t bits;
    __builtin_memcpy(&bits, tiles_[tile].bytes[row] + 4 * pair + 2 * half, sizeof(bits));
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    __builtin_memcpy(&x, &wide, sizeof(x));
    return x;
  }

  int64_t rows_ = 0, row_bytes_ = 0;
  Tile tiles_[8] = {};
};

}  // namespace
}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TILES_EMULATED_H_
