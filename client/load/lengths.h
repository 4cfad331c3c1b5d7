#ifndef LOWKEY_CLIENT_LOAD_LENGTHS_H_
#define LOWKEY_CLIENT_LOAD_LENGTHS_H_

#include <cstdint>
#include <random>
#include <string>
#include <variant>

#include "absl/status/statusor.h"

namespace lowkey {

// How many tokens prompts or outputs have.

inline constexpr int32_t kMaxLength = 1 << 20;

struct UniformLengths {
  int32_t min = 1, max = 1;  // 1..kMaxLength, both included; equal: fixed
};
struct LognormalLengths {
  double median = 1;  // tokens, 1..kMaxLength
  double sigma = 1;   // of the logarithm, 0..10
};
using LengthDistribution = std::variant<UniformLengths, LognormalLengths>;

// "128" | "uniform:64-512" | "lognormal:256,0.8". INVALID_ARGUMENT naming text and forms.
absl::StatusOr<LengthDistribution> ParseLengths(const std::string& text);

// 1..kMaxLength.
int32_t DrawLength(const LengthDistribution& lengths, std::mt19937_64& random);

// The least that can be drawn.
int32_t MinLength(const LengthDistribution& lengths);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_LENGTHS_H_
