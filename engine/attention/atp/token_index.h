#ifndef LOWKEY_ENGINE_ATTENTION_ATP_TOKEN_INDEX_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_TOKEN_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/attention/geometry.h"
#include "engine/kernels/kernels.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// The calibrated codes of every KV head's keys, after RoPE, and of its values. Immutable: any thread
// may read.
struct HeadCodes {
  int64_t n_layers = 0, n_kv_heads = 0;
  std::vector<PrincipalCode> keys, values;  // [n_layers][n_kv_heads]

  int64_t size_bytes() const;
  // FAILED_PRECONDITION when the codes are for a model of another shape.
  absl::Status CheckFits(const AttentionGeometry& geometry) const;
};

// What basis `calibrated` holds of far tokens: a few bits of each key and value of a KV head, in the
// head's calibrated code without escapes. Rows score all far tokens by it, choose those that they
// read whole, and read the values of the others from it. Immutable: any thread may read.
class TokenIndex {
 public:
  static constexpr double kKeyBits = 1.5, kValueBits = 1.0;  // a number

  // The keys or the values of one KV head at one layer: a vector is the mean plus, over components
  // j, gain * level_j * row j. The gain is the vector's and the level one of the codebook of the
  // component's bits.
  struct Half {
    BitPlan plan;
    int64_t width = 0;        // of a row
    std::vector<float> rows;  // [n + 1][width]: by component, then the mean

    int64_t n() const { return plan.n_coded; }
    const float* mean() const { return rows.data() + n() * width; }
  };

  TokenIndex(const AttentionGeometry& geometry, const HeadCodes& codes);

  const Half& keys(int64_t layer, int64_t kv_head) const { return keys_[At(layer, kv_head)]; }
  const Half& values(int64_t layer, int64_t kv_head) const { return values_[At(layer, kv_head)]; }
  int64_t most_components() const { return most_components_; }
  // The components of a key, on average over layers and heads.
  double mean_rank() const { return mean_rank_; }

  // Returns the bytes of a page of 64 tokens of one KV head at one layer: keys, then values, each
  // the components' codes, room for those of all bits, and the gains.
  static int64_t PageBytes(const AttentionGeometry& geometry);

  // Writes a page from keys [key_dim][64] and values [head_dim][64].
  void Encode(int64_t layer, int64_t kv_head, const float* keys, const float* values,
              PrincipalScratch& scratch, std::byte* page) const;

  // Writes the levels of a page's keys or values, [n][64], and the tokens' gains [64].
  void DecodeKeys(int64_t layer, int64_t kv_head, const std::byte* page, float* levels,
                  float* gains) const;
  void DecodeValues(int64_t layer, int64_t kv_head, const std::byte* page, float* levels,
                    float* gains) const;

 private:
  int64_t At(int64_t layer, int64_t kv_head) const { return layer * n_kv_heads_ + kv_head; }
  Half MakeHalf(const PrincipalCode& code, double bits, int64_t width) const;
  void DecodeHalf(const Half& half, int64_t part_bytes, const std::byte* part, float* levels,
                  float* gains) const;

  const HeadCodes& codes_;
  int64_t n_kv_heads_, key_bytes_, value_bytes_;
  int64_t most_components_ = 0;
  double mean_rank_ = 0;
  std::vector<Half> keys_, values_;
  std::vector<float> levels_, gains_;  // as LevelCodes::levels
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_TOKEN_INDEX_H_
