#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_INDEX_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/attention/atp/calibrated/token_rest.h"
#include "engine/attention/atp/calibrated/turned_means.h"
#include "engine/attention/geometry.h"
#include "engine/kernels/levels.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// The calibrated codes of every KV head's keys, after RoPE, and of its values. Immutable: any
// thread may read.
struct HeadCodes {
  int64_t n_layers = 0, n_kv_heads = 0;
  // [n_layers][n_kv_heads]. The mean of keys is that before RoPE, which turns with the position;
  // the components are those of what is left, after RoPE.
  std::vector<PrincipalCode> keys, values;
  std::vector<double> inverse_frequencies;  // [key_dim / 2], angle a position

  int64_t size_bytes() const;
  // FAILED_PRECONDITION when the codes are for a model of another shape.
  absl::Status CheckFits(const AttentionGeometry& geometry) const;
};

// Codes far tokens for basis `calibrated`, as the leading components of each key and value of a KV
// head, in 4, 2 or 1 bits each and with a gain of 2 bits for each vector. Every head has as many
// bits, given where its components' variances call for them. Rows score all far tokens by the
// index, choose those that they read whole, and read the values of the others from it. Immutable:
// any thread may read.
class TokenIndex {
 public:
  // The keys or the values of one KV head at one layer: a vector is the mean, of keys turned to
  // their position, plus, over components j, gain * level_j * row j, with levels of book().
  struct Half {
    LevelBands bands;         // of whole nibbles by four, those of values by eight
    int64_t width = 0;        // of a row
    std::vector<float> rows;  // [n() + 1][width]: by component, then the mean

    int64_t n() const { return bands.n_components(); }
    const float* mean() const { return rows.data() + n() * width; }
  };

  TokenIndex(const AttentionGeometry& geometry, const HeadCodes& codes);

  // Return the nibbles of a key and of a value of `dim` numbers: 1.5 bits and 1 bit a number.
  static int64_t KeyNibbles(int64_t dim);
  static int64_t ValueNibbles(int64_t dim);
  // Return the most components that a key and a value have.
  static int64_t MaxKeyComponents(const AttentionGeometry& geometry);
  static int64_t MaxValueComponents(const AttentionGeometry& geometry);
  // Returns the bands of n_nibbles, each of a multiple of `step`, with the least expected error.
  static LevelBands PlanBands(absl::Span<const float> variances, int64_t n_nibbles, int64_t step);

  const Half& keys(int64_t layer, int64_t kv_head) const { return keys_[At(layer, kv_head)]; }
  const Half& values(int64_t layer, int64_t kv_head) const { return values_[At(layer, kv_head)]; }
  const LevelBook& book() const { return book_; }
  // Return the mean over layers and heads of the components of a key and of a value.
  double MeanKeyComponents() const { return MeanComponents(keys_); }
  double MeanValueComponents() const { return MeanComponents(values_); }

  // Returns the bytes of a page of 64 tokens of one KV head at one layer: keys as
  // KernelTable::score_levels reads them, values as read_levels does, each the codes, then the
  // gains.
  static int64_t PageBytes(const AttentionGeometry& geometry);
  struct Page {
    const uint8_t *keys = nullptr, *key_gains = nullptr;
    const uint8_t *values = nullptr, *value_gains = nullptr, *end = nullptr;
  };
  static Page PageAt(const AttentionGeometry& geometry, const std::byte* page);

  // rest() codes what a page leaves of its tokens.
  const TokenRest& rest() const { return rest_; }

  // Read the components of a token's key or value: their codes, and the gain, which they return.
  float ReadKey(const Page& page, int64_t token, const LevelBands& bands, int8_t* to) const;
  float ReadValue(const Page& page, int64_t token, const LevelBands& bands, int8_t* to) const;

  const TurnedMeans& turned_means() const { return turned_means_; }

  // Scratch of one thread, which keeps its memory between calls.
  struct Scratch {
    PrincipalScratch code;
    std::vector<float> keys;
  };
  // 64 tokens, which are those of page `number` of their sequence.
  struct Tokens {
    int64_t layer = 0, kv_head = 0, number = 0;
    const float* keys = nullptr;    // [key_dim][64]
    const float* values = nullptr;  // [head_dim][64]
  };
  // Writes a page, and the rest of its tokens unless `rest` is null.
  void Encode(const Tokens& tokens, Scratch& scratch, std::byte* page, std::byte* rest) const;

 private:
  float GainAt(const uint8_t* gains, int64_t token) const;
  int64_t At(int64_t layer, int64_t kv_head) const { return layer * n_kv_heads_ + kv_head; }
  static double MeanComponents(const std::vector<Half>& halves);
  static void EncodeRest(const PrincipalCode& code, const TokenRest::Half& half,
                         const CodedComponents& coded, const float* components, std::byte* out,
                         int64_t token_bytes);
  Half MakeHalf(const PrincipalCode& code, const LevelBands& bands, int64_t width) const;

  const HeadCodes& codes_;
  const int64_t n_kv_heads_;
  LevelBook book_;
  float unit_ = 0;  // of book_'s levels
  std::vector<Half> keys_, values_;
  TokenRest rest_;
  const TurnedMeans turned_means_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TOKEN_INDEX_H_
