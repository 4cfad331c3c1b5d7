#ifndef LOWKEY_ENGINE_BASE_BUFFER_H_
#define LOWKEY_ENGINE_BASE_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "absl/status/statusor.h"

namespace lowkey {

// Memory that is not the host's: its addresses can only be handed to whoever computes there.
class Memory {
 public:
  virtual ~Memory() = default;
  // Zero-filled, aligned to 64 bytes. RESOURCE_EXHAUSTED when it cannot be had.
  virtual absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) = 0;
  virtual void Free(std::byte* p) = 0;
  // Within this memory; the two do not overlap.
  virtual void Copy(const std::byte* from, std::byte* to, int64_t size_bytes) = 0;
};

// Owned, zero-filled memory, aligned to 64 bytes; 2 MiB and more of the host's asks for huge pages.
// Move-only.
class Buffer {
 public:
  Buffer() = default;

  // The host's, or that of `memory`, which outlives the buffer. RESOURCE_EXHAUSTED when it cannot
  // be had.
  static absl::StatusOr<Buffer> Allocate(size_t size_bytes, Memory* memory = nullptr);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t size_bytes() const { return size_bytes_; }

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
    size_t mapped_bytes;  // 0: from the heap
    Memory* memory;       // nullptr: the host's
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
  size_t size_bytes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_BUFFER_H_
