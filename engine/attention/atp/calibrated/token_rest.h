#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/attention/geometry.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// Codes what the index leaves of far tokens of basis `calibrated` (token_index.h): the components
// of each key and value of a KV head that it does not hold, and the error of the first ones that it
// holds, in 2 to 4 bits each, with a scale of 8 bits for each vector. A token's are one stretch of
// memory, which the rows that choose it read. Immutable: any thread may read.
class TokenRest {
 public:
  struct Band {
    int64_t n = 0;  // numbers
    int bits = 0;   // of each: 2, 3 or 4
    bool operator==(const Band&) const = default;
    int64_t bytes() const { return (n * bits + 7) / 8; }
  };
  // Half describes the rest of the keys or of the values of one KV head at one layer. Such a vector
  // is the sum over its numbers j of scale * level_j * row j.
  struct Half {
    int64_t n_refined = 0;  // the errors of the index's first components, in its bands first
    int64_t first = 0;      // then all components from this one on
    std::array<Band, 4> bands;
    int64_t width = 0;        // of a row
    std::vector<float> rows;  // [n_padded()][width], zero beyond n()

    int64_t n() const;
    int64_t ComponentOf(int64_t j) const { return j < n_refined ? j : first + j - n_refined; }
    // Returns the variance that the calibration expects of number j.
    float VarianceOf(const PrincipalCode& code, int64_t j) const;
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

  // Writes the keys, or the values, of 64 tokens, `numbers` [n][64] of a half, to `out`, where each
  // token takes token_bytes.
  static void Encode(const PrincipalCode& code, const Half& half, const float* numbers,
                     std::byte* out, int64_t token_bytes);
  // Reads what Encode wrote of one token: levels [n_padded] and their scale, which it returns.
  static float Read(const Half& half, const std::byte* from, int8_t* levels);

 private:
  int64_t At(int64_t layer, int64_t kv_head) const { return layer * n_kv_heads_ + kv_head; }

  const int64_t n_kv_heads_;
  std::vector<Half> keys_, values_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_
