#ifndef LOWKEY_ENGINE_BASE_ALIGNED_VECTOR_H_
#define LOWKEY_ENGINE_BASE_ALIGNED_VECTOR_H_

#include <cstddef>
#include <new>
#include <vector>

namespace lowkey {

// Allocates memory that begins at a cache line.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }

  bool operator==(const LineAllocator&) const { return true; }
};

// Scratch whose rows kernels load: a vector register or a tile's row that lies across two cache
// lines takes twice as long.
template <typename T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_ALIGNED_VECTOR_H_
