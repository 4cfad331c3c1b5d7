#include "engine/lowrank/laplacian.h"

#include <array>
#include <cmath>
#include <vector>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

struct OwnedCodebook {
  std::vector<float> levels, thresholds;
};

// The distance of the centroid of exp(-x) on [0, width] from 0.
double CentroidOf(double width) { return 1 - width / std::expm1(width); }

// Returns the width of the interval whose centroid lies `distance` (in (0, 1]) before its end.
double WidthWithCentroidBefore(double distance) {
  double low = distance, high = 4;  // the centroid lies in the first half
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (middle - CentroidOf(middle) < distance ? low : high) = middle;
  }
  return low;
}

// An exponential density looks the same from every point on, so that the quantizer is found exactly
// from its outermost interval inwards: a threshold lies midway between two levels, which tells how
// far before its end the centroid of the next interval lies.
OwnedCodebook MakeCodebook(int bits) {
  const int n_positive = 1 << (bits - 1);
  std::vector<double> widths;         // of the finite intervals, from the outermost inwards
  std::vector<double> offsets = {1};  // of every interval's level from the interval's begin
  for (int i = 1; i < n_positive; ++i) {
    widths.push_back(WidthWithCentroidBefore(offsets.back()));
    offsets.push_back(CentroidOf(widths.back()));
  }
  const double scale = 1 / std::sqrt(2.0);  // the variance of exp(-|x|) / 2 is 2
  OwnedCodebook book;
  std::vector<double> levels, begins;
  double begin = 0;
  for (int i = n_positive - 1; i >= 0; --i) {
    begins.push_back(begin * scale);
    levels.push_back((begin + offsets[i]) * scale);
    if (i > 0) begin += widths[i - 1];
  }
  for (int i = n_positive - 1; i >= 0; --i) book.levels.push_back(static_cast<float>(-levels[i]));
  for (const double level : levels) book.levels.push_back(static_cast<float>(level));
  for (int i = n_positive - 1; i > 0; --i) {
    book.thresholds.push_back(static_cast<float>(-begins[i]));
  }
  for (const double at : begins) book.thresholds.push_back(static_cast<float>(at));
  return book;
}

}  // namespace

Codebook LaplacianCodebook(int bits) {
  static const auto* const books = [] {
    auto* made = new std::array<OwnedCodebook, kMaxCodeBits>();
    for (int b = 1; b <= kMaxCodeBits; ++b) (*made)[b - 1] = MakeCodebook(b);
    return made;
  }();
  LK_CHECK(bits >= 1 && bits <= kMaxCodeBits);
  const OwnedCodebook& book = (*books)[bits - 1];
  return {book.levels, book.thresholds};
}

double GaussianDistortion(int bits) {
  static constexpr double kDistortions[kMaxCodeBits + 1] = {
      1, 0.36338, 0.11748, 0.034548, 0.0095010, 0.0024990, 0.00064190, 0.00016286, 0.000041022};
  LK_CHECK(bits >= 0 && bits <= kMaxCodeBits);
  return kDistortions[bits];
}

}  // namespace lowkey
