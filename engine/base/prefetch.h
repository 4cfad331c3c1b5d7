#ifndef LOWKEY_ENGINE_BASE_PREFETCH_H_
#define LOWKEY_ENGINE_BASE_PREFETCH_H_

#include <cstdint>

namespace lowkey {

// Asks memory for the lines of n_bytes from `at` on, into the second cache: the first one waits for
// few lines at a time.
inline void Prefetch(const void* at, int64_t n_bytes) {
  constexpr int64_t kLine = 64;
  const auto before = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % kLine);
  for (int64_t i = -before; i < n_bytes; i += kLine) {
    __builtin_prefetch(static_cast<const char*>(at) + i, 0, 2);
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_PREFETCH_H_
