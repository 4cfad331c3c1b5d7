#ifndef LOWKEY_ENGINE_BASE_BUFFER_H_
#define LOWKEY_ENGINE_BASE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

// Memory that is not the host's. Its addresses mean nothing to the host's own code.
class Memory {
 public:
  virtual ~Memory() = default;
  // Returns zeros, aligned to 64 bytes. RESOURCE_EXHAUSTED when the memory cannot be had.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) = 0;
  virtual void Free(std::byte* p) = 0;
  // Copies within this memory; the two regions do not overlap.
  virtual void Copy(const std::byte* from, std::byte* to, int64_t size_bytes) = 0;
};

// Returns the size of the pages in which the system gives memory to the host's programs.
size_t SystemPageBytes();

// Owned memory, zeros at first, aligned to 64 bytes. A buffer of 2 MiB and more on the host asks
// for huge pages. Move-only.
class Buffer {
 public:
  Buffer() = default;

  // Takes memory of the host, or of `memory`, which outlives the buffer. RESOURCE_EXHAUSTED when it
  // cannot be had.
  static absl::StatusOr<Buffer> Allocate(size_t size_bytes, Memory* memory = nullptr);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return size_bytes_; }

  // Gives the host's memory of the system's pages that lie within [begin, end) back: the bytes are
  // zeros, and take memory when they are written again. The buffer's last page counts as whole.
  // Returns false and does nothing in buffers of under 2 MiB, and where the system refuses.
  bool GiveBack(size_t begin, size_t end);

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }

 private:
  struct Unmap {
    size_t mapped_bytes;  // 0: the memory is from the heap
    Memory* memory;       // nullptr: the memory is the host's
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
  size_t size_bytes_ = 0;
};

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

// AlignedVector is for scratch whose rows kernels load: a row of a vector register or of a tile
// that lies across two cache lines takes twice as long.
template <typename T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_BUFFER_H_
