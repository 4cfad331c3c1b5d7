#ifndef LOWKEY_ENGINE_BASE_PREFETCH_H_
#define LOWKEY_ENGINE_BASE_PREFETCH_H_

#include <cstdint>

namespace lowkey {

// Asks memory for the lines of n_bytes from `at` on, into the second cache: the first one waits for
// few lines at a time.
inline void Prefetch(const void* at, int64_t n_bytes) {
  constexpr uintptr_t kLine = 64;
  const auto begin = reinterpret_cast<uintptr_t>(at), end = begin + n_bytes;
  for (uintptr_t line = begin / kLine * kLine; line < end; line += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(line), 0, 2);
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_PREFETCH_H_
