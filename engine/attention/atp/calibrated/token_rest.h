#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/kernels/levels.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// Codes what the index leaves of far tokens of basis `calibrated` (token_index.h). The index has
// the leading components of each key and value of a KV head, as levels of 4, 2 or 1 bits. The rest
// has up to 4 bits more of each, which say in which part of its level's cell a component lies; of
// the components that the index does not hold it has up to 4 bits each, and a scale of 8 bits for
// each vector. Every eight components have as many bits, and every vector as many bytes, given to
// those components whose variances call for them. A token's rest is one stretch of memory, which
// the rows that choose it read. Immutable: any thread may read.
class TokenRest {
 public:
  // Up to eight components with as many bits each, which take `bits` bytes together.
  struct Group {
    static constexpr int64_t kMost = 8;
    int64_t first = 0, n = 0;
    int band = LevelBands::kBands;  // of the index; kBands where that has none of them
    int bits = 0;                   // 0..4
    int64_t end() const { return first + n; }
  };
  // Half describes the rest of the keys or of the values of one KV head at one layer. Such a vector
  // is what the index has of it, with finer levels, and the sum over the numbers j of
  // scale * level_j * row j.
  struct Half {
    std::vector<Group> refined;  // the index's components
    int64_t n_refined_bytes = 0;
    int64_t first = 0;           // the numbers are the components from this one on
    std::vector<Group> numbers;  // counted from `first`, all with bits
    int64_t n_bytes = 0;
    int64_t width = 0;        // of a row
    std::vector<float> rows;  // [n_padded()][width], zero beyond n()

    int64_t n() const { return numbers.empty() ? 0 : numbers.back().end(); }
    // Returns n() rounded up to what products with int8 take at once.
    int64_t n_padded() const;
    int64_t bytes() const { return n_bytes; }
  };

  explicit TokenRest(int64_t n_kv_heads) : n_kv_heads_(n_kv_heads) {}
  // Add the next head, of layer after layer, whose index has components in such bands.
  void AddKeys(const PrincipalCode& code, const LevelBands& bands, int64_t width);
  void AddValues(const PrincipalCode& code, const LevelBands& bands, int64_t width);

  const Half& keys(int64_t layer, int64_t kv_head) const { return keys_[At(layer, kv_head)]; }
  const Half& values(int64_t layer, int64_t kv_head) const { return values_[At(layer, kv_head)]; }

  // Return the bytes of a key's and of a value's rest, which are the same at every layer and head:
  // the scale, and 2 and 2.75 bits a number.
  static int64_t KeyBytes(int64_t dim);
  static int64_t ValueBytes(int64_t dim);
  // Returns the most numbers that a vector's rest has, padded.
  static int64_t MaxPadded(int64_t dim);
  // Returns the groups of `n_bytes`, without rows.
  static Half PlanHalf(absl::Span<const float> variances, const LevelBands& bands, int64_t n_bytes);

  // Returns which of the parts of a level's cell a number lies in. The number is in units of its
  // deviation and of its vector's gain, and `level` is the index's code for it.
  static uint8_t PartOf(float number, const Group& group, uint8_t level);

  // Writes the keys, or the values, of 64 tokens to `out`, where each token takes token_bytes:
  // `parts` [components of the index][64] and `numbers` [n][64] of a half.
  static void Encode(const PrincipalCode& code, const Half& half, absl::Span<const uint8_t> parts,
                     const float* numbers, std::byte* out, int64_t token_bytes);
  // Reads what Encode wrote of one token's numbers: n() levels and their scale, which it returns.
  // The padding, whose rows are zero, stays as it is.
  static float Read(const Half& half, const std::byte* from, int8_t* levels);
  // Turns the index's codes for a token's components into their levels, finer where the rest has
  // more bits of them. Their unit is kLeadUnit times that of the index's levels, so that those of
  // an outermost cell have room beyond the index's largest.
  static constexpr int kMostLevel = 127;
  static constexpr float kLeadUnit = 1.65f * static_cast<float>(LevelBook::kMost) / kMostLevel;
  static void ReadLead(const Half& half, const std::byte* from, int8_t* codes);

 private:
  int64_t At(int64_t layer, int64_t kv_head) const { return layer * n_kv_heads_ + kv_head; }

  const int64_t n_kv_heads_;
  std::vector<Half> keys_, values_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_REST_H_
