#ifndef LOWKEY_TESTS_TESTING_MAX_DIFFERENCE_H_
#define LOWKEY_TESTS_TESTING_MAX_DIFFERENCE_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace lowkey {

// Returns the largest difference, or infinity if one is not a number.
inline double MaxDifference(const float* got, const std::vector<double>& want) {
  double worst = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::fabs(got[i] - want[i]);
    if (std::isnan(difference)) return HUGE_VAL;
    worst = std::max(worst, difference);
  }
  return worst;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_MAX_DIFFERENCE_H_
