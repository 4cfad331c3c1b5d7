#include "engine/lowrank/codebook.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct OwnedCodebook {
  std::vector<float> levels, thresholds;
};

// The part of a density beyond 0.
struct GaussianSide {
  static double At(double x) { return std::exp(-x * x / 2) * 0.3989422804014327; }
  // Returns the share of numbers above x.
  static double Tail(double x) { return std::erfc(x * 0.7071067811865476) / 2; }
  static constexpr double kSpread = 1.7320508075688772;
};
struct LaplacianSide {
  static constexpr double kRate = 1.4142135623730951;
  static double At(double x) { return std::exp(-kRate * x) * kRate / 2; }
  static double Tail(double x) { return std::exp(-kRate * x) / 2; }
  static constexpr double kSpread = 3;
};

// Returns the centroid of the numbers in [begin, end), 0 <= begin < end.
double Centroid(GaussianSide, double begin, double end) {
  using Side = GaussianSide;
  return (Side::At(begin) - Side::At(end)) / (Side::Tail(begin) - Side::Tail(end));
}
double Centroid(LaplacianSide, double begin, double end) {
  constexpr double kRate = LaplacianSide::kRate;
  if (!std::isfinite(end)) return begin + 1 / kRate;
  return begin + 1 / kRate - (end - begin) / std::expm1(kRate * (end - begin));
}

// The numbers in [begin, end): their centroid, and its derivatives by both ends.
template <typename Side>
struct Cell {
  Cell(double begin, double end) : centroid(Centroid(Side(), begin, end)) {
    const double share = Side::Tail(begin) - Side::Tail(end);
    by_begin = Side::At(begin) * (centroid - begin) / share;
    by_end = std::isfinite(end) ? Side::At(end) * (end - centroid) / share : 0;
  }
  double centroid = 0, by_begin = 0, by_end = 0;
};

// Returns the point of [begin, end) above which a fraction of the numbers of the same density,
// kSpread times as wide, lies. Levels of the best quantizer of many bits are spread like those
// numbers (Panter and Dite, 1951).
template <typename Side>
double SpreadPoint(double begin, double end, double fraction) {
  const auto tail = [](double x) { return Side::Tail(x / Side::kSpread); };
  const double wanted = tail(end) + fraction * (tail(begin) - tail(end));
  double low = begin, high = std::isfinite(end) ? end : begin + 40;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (tail(middle) > wanted ? low : high) = middle;
  }
  return low;
}

// Returns the best n levels for [begin, end). Each is the centroid of the numbers between the
// thresholds beside it, which lie midway between levels: n equations, which Newton's method solves.
// Each has its two neighbors' levels, so that elimination goes down once and back up.
template <typename Side>
std::vector<double> BestLevels(double begin, double end, int n) {
  std::vector<double> levels(n), left(n), above(n);
  for (int i = 0; i < n; ++i) levels[i] = SpreadPoint<Side>(begin, end, 1 - (i + 0.5) / n);
  for (int step = 0; step < 50; ++step) {
    double largest = 0;
    for (int i = 0; i < n; ++i) {
      const Cell<Side> cell(i == 0 ? begin : (levels[i - 1] + levels[i]) / 2,
                            i + 1 == n ? end : (levels[i] + levels[i + 1]) / 2);
      const double by_left = i == 0 ? 0 : -cell.by_begin / 2;
      const double by_right = i + 1 == n ? 0 : -cell.by_end / 2;
      double pivot = 1 + by_left + by_right;
      left[i] = cell.centroid - levels[i];
      if (i > 0) pivot -= by_left * above[i - 1], left[i] -= by_left * left[i - 1];
      left[i] /= pivot;
      above[i] = by_right / pivot;
    }
    for (int i = n - 1; i >= 0; --i) {
      if (i + 1 < n) left[i] -= above[i] * left[i + 1];
      levels[i] += left[i];
      largest = std::fmax(largest, std::fabs(left[i]));
    }
    if (largest < 1e-12) break;
  }
  return levels;
}

OwnedCodebook MakeCodebook(const std::vector<double>& levels) {
  OwnedCodebook book;
  book.levels.assign(levels.begin(), levels.end());
  for (size_t i = 1; i < levels.size(); ++i) {
    book.thresholds.push_back(static_cast<float>((levels[i - 1] + levels[i]) / 2));
  }
  return book;
}

std::vector<double> Mirrored(const std::vector<double>& levels) {
  std::vector<double> mirrored;
  for (auto x = levels.rbegin(); x != levels.rend(); ++x) mirrored.push_back(-*x);
  return mirrored;
}

template <typename Side>
OwnedCodebook MakeWhole(int bits) {
  const std::vector<double> positive = BestLevels<Side>(0, kInfinity, 1 << (bits - 1));
  std::vector<double> levels = Mirrored(positive);
  levels.insert(levels.end(), positive.begin(), positive.end());
  return MakeCodebook(levels);
}

template <typename Side>
const OwnedCodebook& WholeOf(int bits) {
  static const auto* const books = [] {
    auto* made = new std::array<OwnedCodebook, kMaxCodeBits>();
    for (int b = 1; b <= kMaxCodeBits; ++b) (*made)[b - 1] = MakeWhole<Side>(b);
    return made;
  }();
  return (*books)[bits - 1];
}

constexpr int kMaxCellBits = 4, kMaxCells = 1 << kMaxCellBits;

struct CellCodebooks {
  CellCodebooks() {
    for (int bits = 1; bits <= kMaxCellBits; ++bits) {
      const std::vector<float>& thresholds = WholeOf<GaussianSide>(bits).thresholds;
      const int n = 1 << bits;
      for (int cell = n / 2; cell < n; ++cell) {
        const double end = cell + 1 < n ? thresholds[cell] : kInfinity;
        for (int part_bits = 1; part_bits <= kMaxCellBits; ++part_bits) {
          const auto levels = BestLevels<GaussianSide>(thresholds[cell - 1], end, 1 << part_bits);
          books[bits - 1][cell][part_bits - 1] = MakeCodebook(levels);
          books[bits - 1][n - 1 - cell][part_bits - 1] = MakeCodebook(Mirrored(levels));
        }
      }
    }
  }
  OwnedCodebook books[kMaxCellBits][kMaxCells][kMaxCellBits];
};

}  // namespace

Codebook CodebookOf(Density density, int bits) {
  LK_CHECK(bits >= 1 && bits <= kMaxCodeBits);
  const OwnedCodebook& book =
      density == Density::kGaussian ? WholeOf<GaussianSide>(bits) : WholeOf<LaplacianSide>(bits);
  return {book.levels, book.thresholds};
}

Codebook GaussianCellCodebook(int bits, int index, int part_bits) {
  static const auto* const cells = new CellCodebooks;
  LK_CHECK(bits >= 1 && bits <= kMaxCellBits && index >= 0 && index < 1 << bits);
  LK_CHECK(part_bits >= 1 && part_bits <= kMaxCellBits);
  const OwnedCodebook& book = cells->books[bits - 1][index][part_bits - 1];
  return {book.levels, book.thresholds};
}

double GaussianDistortion(int bits) {
  static constexpr double kDistortions[kMaxCodeBits + 1] = {1,          0.36338,     0.117482,
                                                            0.0345478,  0.00950101,  0.00250467,
                                                            0.00064424, 0.000163478, 0.000041185};
  LK_CHECK(bits >= 0 && bits <= kMaxCodeBits);
  return kDistortions[bits];
}

}  // namespace lowkey
