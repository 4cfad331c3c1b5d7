#ifndef LOWKEY_ENGINE_LOWRANK_CODEBOOK_H_
#define LOWKEY_ENGINE_LOWRANK_CODEBOOK_H_

#include "absl/types/span.h"

namespace lowkey {

// Codes of a number have 1 to this many bits.
inline constexpr int kMaxCodeBits = 8;

// Density says how numbers of variance 1 are spread for which a quantizer is best.
enum class Density { kGaussian, kLaplacian };

// A quantizer of least squared error (Lloyd-Max; Max, 1960).
struct Codebook {
  absl::Span<const float> levels;      // [2^bits], ascending
  absl::Span<const float> thresholds;  // [2^bits - 1]: a number from threshold i on has level i + 1
};

// Returns the codebook of 1..kMaxCodeBits bits, symmetric around 0, which lives as long as the
// program. Any thread.
Codebook CodebookOf(Density density, int bits);

// Returns the quantizer of least squared error, with 2^part_bits levels, for those numbers of a
// Gaussian that its codebook of `bits` (1..4) gives level `index`. part_bits is 1..4; it lives as
// long as the program. Any thread.
Codebook GaussianCellCodebook(int bits, int index, int part_bits);

// Returns the squared error of the Gaussian codebook of 0..kMaxCodeBits bits. Bits are given to
// components by it.
double GaussianDistortion(int bits);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_CODEBOOK_H_
