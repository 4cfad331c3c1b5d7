// This unpacks gains where no instruction helps, as a part of levels_inl.h.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LEVELS_GAINS_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LEVELS_GAINS_INL_H_

#include <cstdint>

#include "engine/kernels/levels.h"

namespace lowkey::cpu {

template <class V>
inline void UnpackGains(const LevelBook& book, const uint8_t* codes, float* gains) {
  for (int64_t t = 0; t < kLevelTokens; ++t) {
    gains[t] = book.gains[codes[t / 4] >> (2 * (t % 4)) & 3];
  }
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LEVELS_GAINS_INL_H_
