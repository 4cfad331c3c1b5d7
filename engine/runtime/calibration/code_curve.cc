#include "engine/runtime/calibration/code_curve.h"

namespace lowkey {

std::vector<CodeCurvePoint> CodeCurve(const PrefixCodes& codes) {
  double variance = 0;
  for (const PrincipalCode& code : codes.codes) {
    for (const float v : code.variances) variance += v;
  }
  std::vector<CodeCurvePoint> curve;
  for (const double bits : {1.5, 1.85, 2.0, 2.45, 3.0, 3.3, 4.0, 5.0, 6.0, 8.0}) {
    CodeCurvePoint& point = curve.emplace_back();
    point.bits = bits;
    double error = 0;
    for (const BitPlan& plan : PlanPrefixBits(codes, bits)) {
      error += plan.expected_error;
      point.bytes_per_token += static_cast<double>(plan.fixed_bytes) / kCodedTokens;
    }
    const auto n_numbers = static_cast<double>(codes.n_layers * codes.n_groups * codes.group.dim());
    point.share = point.bytes_per_token / (2 * n_numbers);
    point.distortion = variance > 0 ? error / variance : 0;
  }
  return curve;
}

}  // namespace lowkey
