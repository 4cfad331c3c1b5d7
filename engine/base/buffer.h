#ifndef LOWKEY_ENGINE_BASE_BUFFER_H_
#define LOWKEY_ENGINE_BASE_BUFFER_H_

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "absl/status/statusor.h"

namespace lowkey {

// Owned, zero-filled memory, aligned to 64 bytes; 2 MiB and more asks for huge pages. Move-only.
class Buffer {
 public:
  Buffer() = default;

  // RESOURCE_EXHAUSTED when the memory cannot be had.
  static absl::StatusOr<Buffer> Allocate(size_t size_bytes);

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
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
  size_t size_bytes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_BUFFER_H_
