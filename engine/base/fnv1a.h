#ifndef LOWKEY_ENGINE_BASE_FNV1A_H_
#define LOWKEY_ENGINE_BASE_FNV1A_H_

#include <cstddef>
#include <cstdint>

namespace lowkey {

// The 64-bit hash FNV-1a (Fowler, Noll and Vo), the same on every machine. It names files and
// tells apart what changed by accident. It does not resist inputs that are made to collide.
class Fnv1a {
 public:
  void Add(const void* data, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3u;
  }

  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_FNV1A_H_
