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

  // Pages holds the turns of one position of each page: of the first for frequencies that turn by
  // more than 1 within a page, of the middle for the others. It keeps its memory between calls.
  struct Pages {
    std::vector<float> cos, sin;  // [n_pages][key_dim / 2]
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
  // Returns the numbers of Score's scratch for so many rows and pages.
  int64_t ScratchSize(int64_t n_rows, int64_t n_pages) const {
    return n_rows * n_pages * n_terms() + 2 * static_cast<int64_t>(frequencies_.size());
  }

 private:
  // A page's scores are sums of these terms: cosines and sines of the fast frequencies, and powers
  // of the position.
  static constexpr int64_t kPowers = 4;
  int64_t n_terms() const { return 2 * n_fast_ + kPowers; }
  // Returns a position for which Pages has the turn of frequency i.
  double PositionOf(int64_t i, int64_t page) const;
  void FindTerms(const float* q, const float* a, const float* b, float* terms) const;

  const std::vector<double> frequencies_;
  int64_t n_fast_ = 0;        // the first frequencies, behind which all are slow
  std::vector<float> turns_;  // [key_dim][64]: cosines, then sines, from those of Pages on
  std::vector<float> terms_;  // [n_terms()][64]
  // powers_[i] says how much of power i + 1 the slow turn of each frequency has.
  std::vector<float> powers_[kPowers - 1];
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_CALIBRATED_TURNED_MEANS_H_
