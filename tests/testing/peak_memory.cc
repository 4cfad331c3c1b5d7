#include "tests/testing/peak_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> held_bytes{0};
std::atomic<size_t> peak_bytes{0};

}  // namespace

void* operator new(size_t n_bytes) {
  void* const memory = std::malloc(n_bytes);
  if (memory == nullptr) throw std::bad_alloc();
  const size_t held = held_bytes += malloc_usable_size(memory);
  size_t peak = peak_bytes;
  while (held > peak && !peak_bytes.compare_exchange_weak(peak, held)) {
  }
  return memory;
}

void operator delete(void* memory) noexcept {
  held_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace lowkey {

size_t PeakBytes(absl::FunctionRef<void()> work) {
  const size_t held_before = held_bytes;
  peak_bytes = held_before;
  work();
  return peak_bytes - held_before;
}

}  // namespace lowkey
