#ifndef LOWKEY_ENGINE_CONFIG_PERPLEXITY_RATIOS_H_
#define LOWKEY_ENGINE_CONFIG_PERPLEXITY_RATIOS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/config/attention_options.h"

namespace lowkey {

// Perplexity over standard attention's, as measured in windows of some lengths.
class PerplexityRatios {
 public:
  struct Point {
    int64_t n_tokens = 0;
    double ratio = 1;
  };

  PerplexityRatios() = default;
  // The points are in ascending order of n_tokens, which are positive.
  explicit PerplexityRatios(std::vector<Point> points) : points_(std::move(points)) {}

  const std::vector<Point>& points() const { return points_; }
  bool empty() const { return points_.empty(); }

  // Returns the ratio at a length, interpolated over the length's logarithm; the nearest point's
  // outside of the measured lengths; nullopt where nothing was measured.
  std::optional<double> At(int64_t n_tokens) const;

 private:
  std::vector<Point> points_;
};

// The share of what was asked that a model got right, 0..1, in texts of some length.
struct MeasuredShare {
  int64_t n_tokens = 0;
  double share = 0;
};

// A mechanism with options whose quality was measured on this model (lowkey eval --record).
struct MeasuredQuality {
  AttentionOptions options;
  PerplexityRatios ratios;
  // By length, ascending: the digits of codes, and the tokens of a passage, that stood far above.
  std::vector<MeasuredShare> recalled_digits = {}, copied_tokens = {};
  std::optional<double> right_answers = {};  // the share of multiple choices
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_PERPLEXITY_RATIOS_H_
