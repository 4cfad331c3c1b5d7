#ifndef LOWKEY_ENGINE_LOADER_MAPPED_FILE_H_
#define LOWKEY_ENGINE_LOADER_MAPPED_FILE_H_

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lowkey {

// A whole regular file, mapped read-only. The mapping lives as long as the object; any thread may
// read. The size is the one at opening: a file that another process shrinks while it is mapped
// kills the reader with SIGBUS, so files are replaced (written aside and renamed), never truncated
// in place.
class MappedFile {
 public:
  // NOT_FOUND when there is no such file, PERMISSION_DENIED when it may not be read,
  // INVALID_ARGUMENT when it is no regular file or longer than max_bytes, RESOURCE_EXHAUSTED when
  // it cannot be mapped.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(
      const std::string& path, size_t max_bytes = std::numeric_limits<size_t>::max());

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // The last component of the path, for messages.
  const std::string& name() const { return name_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_bytes_}; }

 private:
  MappedFile(std::string name, const std::byte* data, size_t size_bytes)
      : name_(std::move(name)), data_(data), size_bytes_(size_bytes) {}

  const std::string name_;
  const std::byte* const data_;  // null when the file is empty
  const size_t size_bytes_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_MAPPED_FILE_H_
