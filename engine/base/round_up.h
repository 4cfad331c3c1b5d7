#ifndef LOWKEY_ENGINE_BASE_ROUND_UP_H_
#define LOWKEY_ENGINE_BASE_ROUND_UP_H_

#include <cstdint>

namespace lowkey {

// Returns n / step, rounded up, for n >= 0.
constexpr int64_t DivideUp(int64_t n, int64_t step) { return (n + step - 1) / step; }

// Returns the least multiple of step that is not below n >= 0.
constexpr int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_ROUND_UP_H_
