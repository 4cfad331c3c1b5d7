#include "engine/lowrank/laplacian.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr double kScale = 0.70710678118654752;  // of exp(-|x| / kScale), whose variance is 1

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
  OwnedCodebook book;
  std::vector<double> levels, begins;
  double begin = 0;
  for (int i = n_positive - 1; i >= 0; --i) {
    begins.push_back(begin * kScale);
    levels.push_back((begin + offsets[i]) * kScale);
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

// Returns the centroid of a Laplacian's numbers in [begin, end), 0 <= begin < end; an end that is
// not finite is none.
double CentroidOf(double begin, double end) {
  if (!std::isfinite(end)) return begin + kScale;
  return begin + kScale * CentroidOf((end - begin) / kScale);
}

// The quantizer of [begin, end) on the positive side, by Lloyd's iteration.
OwnedCodebook MakeCellCodebook(double begin, double end, int part_bits) {
  const int n = 1 << part_bits;
  const double width = std::isfinite(end) ? end - begin : 4 * kScale;
  std::vector<double> ends(n, end);
  for (int i = 0; i + 1 < n; ++i) ends[i] = begin + width * (i + 1) / n;
  std::vector<double> levels(n);
  for (int step = 0; step < 300; ++step) {
    for (int i = 0; i < n; ++i) levels[i] = CentroidOf(i == 0 ? begin : ends[i - 1], ends[i]);
    for (int i = 0; i + 1 < n; ++i) ends[i] = (levels[i] + levels[i + 1]) / 2;
  }
  return {{levels.begin(), levels.end()}, {ends.begin(), ends.end() - 1}};
}

OwnedCodebook Mirrored(OwnedCodebook book) {
  for (std::vector<float>* numbers : {&book.levels, &book.thresholds}) {
    std::reverse(numbers->begin(), numbers->end());
    for (float& x : *numbers) x = -x;
  }
  return book;
}

constexpr int kMaxCellBits = 4, kMaxCells = 1 << kMaxCellBits;

struct CellCodebooks {
  CellCodebooks() {
    for (int bits = 1; bits <= kMaxCellBits; ++bits) {
      const Codebook whole = LaplacianCodebook(bits);
      const int n = 1 << bits;
      for (int cell = n / 2; cell < n; ++cell) {
        const double end =
            cell + 1 < n ? whole.thresholds[cell] : std::numeric_limits<double>::infinity();
        for (int part_bits = 1; part_bits <= kMaxCellBits; ++part_bits) {
          auto& of_bits = books[bits - 1];
          of_bits[cell][part_bits - 1] =
              MakeCellCodebook(whole.thresholds[cell - 1], end, part_bits);
          of_bits[n - 1 - cell][part_bits - 1] = Mirrored(of_bits[cell][part_bits - 1]);
        }
      }
    }
  }
  OwnedCodebook books[kMaxCellBits][kMaxCells][kMaxCellBits];
};

}  // namespace

Codebook LaplacianCellCodebook(int bits, int index, int part_bits) {
  static const auto* const cells = new CellCodebooks;
  LK_CHECK(bits >= 1 && bits <= kMaxCellBits && index >= 0 && index < 1 << bits);
  LK_CHECK(part_bits >= 1 && part_bits <= kMaxCellBits);
  const OwnedCodebook& book = cells->books[bits - 1][index][part_bits - 1];
  return {book.levels, book.thresholds};
}

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
