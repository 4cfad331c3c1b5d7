// Searches for the largest of many numbers, a part of kernels_inl.h: see its first lines.
#ifndef LOWKEY_ENGINE_KERNELS_CPU_LARGEST_INL_H_
#define LOWKEY_ENGINE_KERNELS_CPU_LARGEST_INL_H_

#include <cstdint>

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

template <class V>
void LaneMaxima(const float* x, int64_t n, float* out) {
  constexpr int kVecs = 16 / V::kLanes;
  for (int64_t c = 0; c < n; ++c, x += 256, out += 16) {
    typename V::Vec top[kVecs];
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) top[j] = V::Load(x + j * V::kLanes);
    for (int64_t i = 16; i < 256; i += 16) {
#pragma GCC unroll 4
      for (int j = 0; j < kVecs; ++j) top[j] = V::Max(V::Load(x + i + j * V::kLanes), top[j]);
    }
#pragma GCC unroll 4
    for (int j = 0; j < kVecs; ++j) V::Store(out + j * V::kLanes, top[j]);
  }
}

// OrderKey is written out here, because a function of sampling_arithmetic.h that is compiled for
// this processor could be linked into code for others.
template <class V>
KeyRange FindKeyRange(const float* x, int64_t n) {
  int32_t smallest = 0x7fffffff, largest = -0x7fffffff - 1;
  for (int64_t i = 0; i < n; ++i) {
    int32_t key;
    __builtin_memcpy(&key, x + i, sizeof(key));
    key ^= (key >> 31) & 0x7fffffff;
    smallest = key < smallest ? key : smallest;
    largest = key > largest ? key : largest;
  }
  return {smallest, largest};
}

template <class V>
int64_t FindNotBelow(const float* x, int64_t n, float least, int32_t* out) {
  const int64_t whole = n / V::kLanes * V::kLanes;
  const auto bound = V::Set1(least);
  int64_t n_found = 0;
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    for (uint32_t found = V::NotBelow(V::Load(x + i), bound); found != 0; found &= found - 1) {
      out[n_found++] = static_cast<int32_t>(i + __builtin_ctz(found));
    }
  }
  for (int64_t i = whole; i < n; ++i) {
    if (!(x[i] < least)) out[n_found++] = static_cast<int32_t>(i);
  }
  return n_found;
}

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_LARGEST_INL_H_
