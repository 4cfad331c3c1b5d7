#ifndef LOWKEY_ENGINE_KERNELS_LEVELS_H_
#define LOWKEY_ENGINE_KERNELS_LEVELS_H_

#include <cstdint>

namespace lowkey {

// The number of tokens whose levels are coded together.
inline constexpr int64_t kLevelTokens = 64;

// LevelBands says how many components have 4, then 2, then 1 bits each. Four bits together are a
// nibble, which has one component of the first band, two of the second or four of the third: bits
// from i * bits on are those of component i * nibbles(band) + u of the band in its nibble u.
//
// Each instruction set compiles these functions for itself, so they are always inlined.
struct LevelBands {
  static constexpr int kBands = 3;
  static constexpr int kBits[kBands] = {4, 2, 1};
  int64_t n[kBands] = {};

  bool operator==(const LevelBands&) const = default;
  [[gnu::always_inline]] int64_t nibbles(int band) const { return n[band] * kBits[band] / 4; }
  [[gnu::always_inline]] int64_t n_components() const { return n[0] + n[1] + n[2]; }
  [[gnu::always_inline]] int64_t n_nibbles() const { return nibbles(0) + nibbles(1) + nibbles(2); }
};

// LevelBook holds codebooks in integers, and gains of 2 bits: number = gain * unit * level, for a
// unit that the caller knows. 64 tokens have 64 gains, little-endian bits.
struct LevelBook {
  static constexpr int kTables = 7, kNibbles = 16, kGains = 4, kMost = 63;
  // Table TableOf(band) + i gives each nibble the level, -kMost..kMost, of component i of the
  // band's components in it.
  int8_t levels[kTables][kNibbles] = {};
  float gains[kGains] = {};

  [[gnu::always_inline]] static constexpr int TableOf(int band) { return (1 << band) - 1; }
};

// scores [n_rows][64] += scales * (rows times levels) * gains: rows in int8 against the keys
// of 64 tokens. Four nibbles are coded together: entry 4 t + i is nibble i of token t, and byte j
// of their 128 has entry j in its low bits and entry 128 + j in its high bits.
struct ScoreLevelsArgs {
  const LevelBook* book = nullptr;
  const uint8_t* codes = nullptr;     // [bands.n_nibbles() / 4][128]
  const uint8_t* gains = nullptr;     // [16]
  LevelBands bands;                   // each of a multiple of 4 nibbles
  const int8_t* rows = nullptr;       // row i at rows + i * bands.n_components()
  const int32_t* row_sums = nullptr;  // [n_rows]: the sums of their numbers
  const float* scales = nullptr;      // [n_rows]
  int64_t n_rows = 0;
  float* scores = nullptr;  // row i at scores + i * ld_scores
  int64_t ld_scores = 0;
};

// sums [n_rows][components] += weights times levels, over the values of 64 tokens. Weights are
// rounded to 8 bits of the row's largest product of weight and gain. Four tokens are coded
// together: byte 4 j + i of those from t on has nibble j of token t + i in its low bits and of
// token t + 32 + i in its high bits.
struct ReadLevelsArgs {
  const LevelBook* book = nullptr;
  const uint8_t* codes = nullptr;  // [8][bands.n_nibbles()][4]
  const uint8_t* gains = nullptr;  // [16]
  LevelBands bands;                // each of a multiple of 8 nibbles
  const float* weights = nullptr;  // none negative; row i at weights + i * ld_weights
  int64_t ld_weights = 0;
  int64_t n_rows = 0;
  float* sums = nullptr;  // row i at sums + i * ld_sums
  int64_t ld_sums = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_LEVELS_H_
