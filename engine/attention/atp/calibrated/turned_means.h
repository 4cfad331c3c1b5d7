#ifndef LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TURNED_MEANS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TURNED_MEANS_H_

#include <cstdint>
#include <vector>

namespace lowkey {

// RoPE turns a key's mean with its position: of R(p) k the mean is R(p) mean. TurnedMeans has the
// mean's numbers, and the scores that queries give it, at the 64 positions of pages. Immutable: any
// thread may read.
class TurnedMeans {
 public:
  // inverse_frequencies [key_dim / 2]: angle a position.
  explicit TurnedMeans(const std::vector<double>& inverse_frequencies);

  // Writes a mean [key_dim], turned to the positions of a page, to columns [key_dim][64]. Within a
  // page slow turns are polynomials of degree 3, off by less than 0.003 of what they turn.
  void Turn(const float* mean, int64_t page, float* columns) const;

  // Pages holds what scores need of each page, of which kChunk are scored together. It keeps its
  // memory between calls.
  static constexpr int64_t kChunk = 16;
  struct Pages {
    std::vector<float> cos, sin;  // [n_pages][fast frequencies, padded]: at the first position
    std::vector<float> powers;    // [n_pages / kChunk][2 slow frequencies][kChunk][kPowers]
    int64_t n = 0;                // a multiple of kChunk
  };
  // Gives `pages` those of pages 0 to n_pages - 1.
  void Grow(int64_t n_pages, Pages& pages) const;

  // Writes the products of queries with the mean at the positions of pages [begin, end), which
  // `pages` has, as Turn gives it.
  struct Scored {
    const float* q = nullptr;  // row i at q + i * ld_q
    int64_t ld_q = 0, n_rows = 0;
    const float* mean = nullptr;
    int64_t begin = 0, end = 0;
    float* scores = nullptr;  // [end - begin][64] of row i at scores + i * ld_scores
    int64_t ld_scores = 0;
  };
  void Score(const Scored& scored, const Pages& pages, std::vector<float>& scratch) const;
  // Returns the numbers of Score's scratch for so many rows.
  int64_t ScratchSize(int64_t n_rows) const;

 private:
  // A page's scores are sums of these terms: cosines and sines of the fast frequencies, and powers
  // of the position.
  static constexpr int64_t kPowers = 4;
  // Turned are a row's products with the mean: of each pair (q1, q2) with (m1, m2), q1 m1 + q2 m2
  // and q2 m1 - q1 m2, which turn as a pair does.
  struct Turned {
    float *fast = nullptr, *fast_odd = nullptr;  // [n_fast_, padded]
    float* slow = nullptr;                       // [n_slow()], then the odd ones
  };
  int64_t n_slow() const { return static_cast<int64_t>(frequencies_.size()) - n_fast_; }
  int64_t n_terms() const { return 2 * n_fast_ + kPowers; }
  int64_t n_fast_padded() const;
  int64_t row_size() const { return 2 * (n_fast_padded() + n_slow()); }
  Turned TurnedAt(float* row) const;
  void FindProducts(const float* q, const float* mean, const Turned& row) const;
  // Writes the terms of a row for a page, and up to n_fast_padded() - n_fast_ numbers behind them.
  void FindTerms(const Turned& row, const Pages& pages, int64_t page, const float* powers,
                 float* terms) const;
  // Returns a position for which Pages has the turn of frequency i.
  double PositionOf(int64_t i, int64_t page) const;

  const std::vector<double> frequencies_;
  int64_t n_fast_ = 0;        // the first frequencies, behind which all are slow
  std::vector<float> turns_;  // [key_dim][64]: cosines, then sines, from those of Pages on
  std::vector<float> terms_;  // [n_terms()][64]
  // powers_[i] says how much of power i + 1 the slow turn of each frequency has.
  std::vector<float> powers_[kPowers - 1];
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TURNED_MEANS_H_
