// This file has the tiles of AMX. Everything is in an anonymous namespace, as the kernels are
// (kernels_inl.h).
#ifndef LOWKEY_ENGINE_KERNELS_CPU_TILES_X86_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TILES_X86_H_

#include <cstdint>

namespace lowkey::cpu {
namespace {

// An object has the processor's eight tiles of at most 16 rows of 64 bytes while it lives. Only one
// may live in a thread. Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of B.
//
// The instructions are written out: GCC 12 takes _tile_loadd to read no memory and _tile_loadconfig
// to read 8 bytes, and optimizes away what was written there before.
class X86Tiles {
 public:
  X86Tiles() = default;
  ~X86Tiles() {
    if (rows_ != 0) asm volatile("tilerelease");
  }
  X86Tiles(const X86Tiles&) = delete;
  X86Tiles& operator=(const X86Tiles&) = delete;

  // Sets how many rows A has and how many bytes each: those of the steps that a product takes.
  // Clears all tiles where either changes.
  void Configure(int64_t rows, int64_t row_bytes) {
    if (rows == rows_ && row_bytes == row_bytes_) return;
    rows_ = rows;
    row_bytes_ = row_bytes;
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(config) == 64);
    for (int tile = 0; tile < 8; ++tile) {
      const bool is_row = tile == 4 || tile == 5;
      config.row_bytes[tile] = static_cast<uint16_t>(is_row ? row_bytes : 64);
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : row_bytes / 4);
    }
    asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // Row r of the tile is at p + r * stride bytes.
  template <int kTile>
  static void Load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void Store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(p), "r"(stride), "i"(kTile) : "memory");
  }
  // Adds rows of bf16 times pairs of steps of 16 columns (tile_products_inl.h).
  template <int kSum, int kRows, int kColumns>
  static void AddPairs() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
  }

  // Add rows of signed, or unsigned, bytes times fours of steps of 16 columns of signed bytes.
  template <int kSum, int kRows, int kColumns>
  static void AddSigned() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
  }
  template <int kSum, int kRows, int kColumns>
  static void AddUnsigned() {
    asm volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kColumns));
  }

 private:
  int64_t rows_ = 0, row_bytes_ = 0;
};

}  // namespace
}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TILES_X86_H_
