#ifndef LOWKEY_ENGINE_LOADER_BYTE_READER_H_
#define LOWKEY_ENGINE_LOADER_BYTE_READER_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

#include "absl/types/span.h"

namespace lowkey {

static_assert(std::endian::native == std::endian::little);

// Reads little-endian numbers and strings from untrusted bytes, front to back. A value that is cut
// short is nullopt and leaves the position where it was.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  size_t position() const { return position_; }
  size_t n_left() const { return bytes_.size() - position_; }

  std::optional<absl::Span<const std::byte>> Take(uint64_t n_bytes) {
    if (n_bytes > n_left()) return std::nullopt;
    const auto taken = bytes_.subspan(position_, n_bytes);
    position_ += n_bytes;
    return taken;
  }

  template <typename T>
  requires std::is_arithmetic_v<T> std::optional<T> Number() {
    const auto taken = Take(sizeof(T));
    if (!taken.has_value()) return std::nullopt;
    T value;
    std::memcpy(&value, taken->data(), sizeof(T));
    return value;
  }

  // Reads a length in 8 bytes, then that many bytes.
  std::optional<std::string_view> String() {
    const size_t begin = position_;
    const auto n_bytes = Number<uint64_t>();
    if (!n_bytes.has_value()) return std::nullopt;
    const auto taken = Take(*n_bytes);
    if (!taken.has_value()) {
      position_ = begin;
      return std::nullopt;
    }
    return std::string_view(reinterpret_cast<const char*>(taken->data()), taken->size());
  }

 private:
  absl::Span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_BYTE_READER_H_
