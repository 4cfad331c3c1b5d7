#ifndef LOWKEY_ENGINE_BASE_ROUND_UP_H_
#define LOWKEY_ENGINE_BASE_ROUND_UP_H_

#include <cstdint>

namespace lowkey {

// Returns n / step, rounded up, for n >= 0.
constexpr int64_t DivideUp(int64_t n, int64_t step) { return (n + step - 1) / step; }

// Returns the least multiple of step that is not below n >= 0.
constexpr int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// The number of tokens in a page of the cache, which is the width of one attention tile. It is
// defined here because the cache, the kernels and the loader do not include one another.
inline constexpr int64_t kPageTokens = 64;

// Returns the number of pages that hold n_tokens.
constexpr int64_t PagesFor(int64_t n_tokens) { return DivideUp(n_tokens, kPageTokens); }

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_ROUND_UP_H_
