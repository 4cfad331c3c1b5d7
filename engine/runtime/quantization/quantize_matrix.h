#ifndef LOWKEY_ENGINE_RUNTIME_QUANTIZATION_QUANTIZE_MATRIX_H_
#define LOWKEY_ENGINE_RUNTIME_QUANTIZATION_QUANTIZE_MATRIX_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/tensor.h"
#include "engine/base/threads/thread_pool.h"

namespace lowkey {

// ErrorMetric says how the errors e of a row of weights add up in a map's outputs: their expected
// square is e'He = |Re|^2, with H the second moment of the map's inputs and R upper triangular.
struct ErrorMetric {
  int64_t n_in = 0;
  std::vector<float> weights;  // [n_in]: R_ii^2
  // [n_in, n_in]: R_ij / R_ii, with zeros below the diagonal. Empty: R is the identity.
  std::vector<float> ratios;
};

// Returns the metric of inputs that are independent and all of one size.
ErrorMetric EqualInputs(int64_t n_in);

// Returns the metric of inputs with this second moment H [n_in, n_in], to whose diagonal a
// hundredth of its mean is added, as GPTQ does, so that what the inputs did not show stays small.
// nullopt when H is not finite.
std::optional<ErrorMetric> MetricOf(absl::Span<const double> second_moment, ThreadPool& pool);

// Rounding says how a matrix is rounded: to codes of 4 bits with a scale and a zero point for each
// group_size inputs of an output, or of 8 bits with a scale alone (the zero point is 128).
struct Rounding {
  int bits = 4;             // or 8
  int64_t group_size = 32;  // divides the inputs; a multiple of 8
};

// A matrix [n_out, n_in] as a GPTQ checkpoint's first format stores it (kGptq4 or kGptq8 with
// zero_offset 1 in grouped_codes.h), in groups of neighbors.
struct RoundedMatrix {
  std::vector<uint32_t> codes;   // [n_in / codes in a word, n_out]
  std::vector<uint32_t> zeros;   // [n_groups, n_out / codes in a word]
  std::vector<uint16_t> scales;  // [n_groups, n_out], half precision
  // The expected squares of the outputs' errors and of the outputs, summed over the rows.
  double error = 0, size = 0;
};

// Rounds a matrix. Inputs are rounded from the last to the first, and the error that the rounded
// ones leave is made up for by those that follow: Babai's nearest plane, which is GPTQ (Frantar et
// al., 2023; Chen et al., 2025) in reverse order. Scales and zero points have the least weighted
// error of those tried around the group's range. The matrix is finite, with numbers up to
// kMaxWeight; n_out is a multiple of 8. The result does not depend on the number of threads.
inline constexpr float kMaxWeight = 65504;  // the largest number of half precision
RoundedMatrix QuantizeMatrix(const TensorView& matrix, const Rounding& rounding,
                             const ErrorMetric& metric, ThreadPool& pool);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_QUANTIZATION_QUANTIZE_MATRIX_H_
