#ifndef LOWKEY_ENGINE_BASE_MIX_BITS_H_
#define LOWKEY_ENGINE_BASE_MIX_BITS_H_

#include <cstdint>

namespace lowkey {

// The step between successive counters of splitmix64: 2^64 over the golden ratio.
inline constexpr uint64_t kGoldenStep = 0x9e3779b97f4a7c15u;

// Returns splitmix64's finalizer of `z`, a one-to-one map after which every bit depends on all bits
// of `z`. Tokens that a seed draws depend on its constants.
constexpr uint64_t MixBits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_MIX_BITS_H_
