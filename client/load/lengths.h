#ifndef LOWKEY_CLIENT_LOAD_LENGTHS_H_
#define LOWKEY_CLIENT_LOAD_LENGTHS_H_

#include <cstdint>
#include <random>
#include <string>
#include <variant>

#include "absl/status/statusor.h"

namespace lowkey {

// Distributions of the number of tokens in prompts and outputs.

inline constexpr int32_t kMaxLength = 1 << 20;

struct UniformLengths {
  int32_t min = 1, max = 1;  // 1..kMaxLength, both included; a fixed length if equal
};
struct LognormalLengths {
  double median = 1;  // tokens, 1..kMaxLength
  double sigma = 1;   // standard deviation of the logarithm, 0..10
};
using LengthDistribution = std::variant<UniformLengths, LognormalLengths>;

// Parses "128", "uniform:64-512" or "lognormal:256,0.8". INVALID_ARGUMENT names text and forms.
absl::StatusOr<LengthDistribution> ParseLengths(const std::string& text);

// Draws a length in 1..kMaxLength.
int32_t DrawLength(const LengthDistribution& lengths, std::mt19937_64& random);

// Returns the least length that can be drawn.
int32_t MinLength(const LengthDistribution& lengths);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_LENGTHS_H_
