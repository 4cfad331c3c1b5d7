#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/attention/geometry.h"
#include "engine/kernels/kernels.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// Codes what the index leaves of far tokens of basis `calibrated` (token_index.h). The index has
// the leading components of each key and value of a KV head, as levels of 4 bits. For the first of
// them the rest has up to 4 bits more, which say in which of 2, 4 or 16 equal parts of its level's
// cell a component lies; for the components that the index does not hold it has 2 to 4 bits each,
// and a scale of 8 bits for each vector. A token's rest is one stretch of memory, which the rows
// that choose it read. Immutable: any thread may read.
class TokenRest {
 public:
  struct Band {
    int64_t n = 0;  // numbers
    int bits = 0;   // of each
    bool operator==(const Band&) const = default;
    int64_t bytes() const { return (n * bits + 7) / 8; }
  };
  // Half describes the rest of the keys or of the values of one KV head at one layer. Such a vector
  // is what the index has of it, with finer levels, and the sum over the numbers j of
  // scale * level_j * row j.
  struct Half {
    std::array<Band, 3> refined;  // the index's first components, in 4, 2 and 1 bits more
    int64_t first = 0;            // the numbers are all components from this one on
    std::array<Band, 3> bands;    // the numbers, in 4, 3 and 2 bits
    int64_t width = 0;            // of a row
    std::vector<float> rows;      // [n_padded()][width], zero beyond n()

    int64_t n_refined() const;
    int64_t n() const;
    // Returns n() rounded up to what products with int8 take at once.
    int64_t n_padded() const;
    int64_t bytes() const;
  };

  // The index holds the first n_keys and n_values components.
  TokenRest(const AttentionGeometry& geometry, const std::vector<PrincipalCode>& keys,
            const std::vector<PrincipalCode>& values, int64_t n_keys, int64_t n_values);

  const Half& keys(int64_t layer, int64_t kv_head) const { return keys_[At(layer, kv_head)]; }
  const Half& values(int64_t layer, int64_t kv_head) const { return values_[At(layer, kv_head)]; }

  // Return the sizes of the rest, without rows, of `dim` components of which the index has n_index.
  static Half KeysOf(int64_t n_index, int64_t dim);
  static Half ValuesOf(int64_t n_index, int64_t dim);

  // Returns which of the 2^bits parts of a level's cell a number lies in. The number is in units of
  // its deviation and of its vector's gain, and `level` is the index's code for it.
  static uint8_t PartOf(float number, uint8_t level, int bits);

  // Writes the keys, or the values, of 64 tokens to `out`, where each token takes token_bytes:
  // `parts` [n_refined][64] and `numbers` [n][64] of a half.
  static void Encode(const PrincipalCode& code, const Half& half, const uint8_t* parts,
                     const float* numbers, std::byte* out, int64_t token_bytes);
  // Reads what Encode wrote of one token's numbers: levels [n_padded] and their scale, which it
  // returns.
  static float Read(const Half& half, const std::byte* from, int8_t* levels);
  // Turns the index's codes for a token's n components into their levels, finer where the rest has
  // more bits of them. Their unit is kLeadUnit times that of the index's levels.
  static constexpr int kMostLevel = 127;
  static constexpr float kLeadUnit = static_cast<float>(LevelBook::kMost) / kMostLevel;
  static void ReadLead(const Half& half, const std::byte* from, int64_t n, int8_t* codes);

 private:
  int64_t At(int64_t layer, int64_t kv_head) const { return layer * n_kv_heads_ + kv_head; }

  const int64_t n_kv_heads_;
  std::vector<Half> keys_, values_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_
