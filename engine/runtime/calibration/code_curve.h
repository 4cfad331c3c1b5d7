#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_CODE_CURVE_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_CODE_CURVE_H_

#include <vector>

#include "engine/attention/standard/prefix_codes.h"

namespace lowkey {

// Says what a token of a coded prefix takes and loses at one number of bits. Tokens that escape are
// left out.
struct CodeCurvePoint {
  double bits = 0;             // per number
  double bytes_per_token = 0;  // over all layers
  double share = 0;            // of the bytes of an exact token in a bf16 cache
  // The expected error over the variance, both weighted as the calibration weighs them, over all
  // layers: 1 is what a token costs of which the mean alone is known.
  double distortion = 0;
};

// Returns the points from 1.5 to 8 bits, ascending.
std::vector<CodeCurvePoint> CodeCurve(const PrefixCodes& codes);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_CODE_CURVE_H_
