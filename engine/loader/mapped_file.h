#ifndef LOWKEY_ENGINE_LOADER_MAPPED_FILE_H_
#define LOWKEY_ENGINE_LOADER_MAPPED_FILE_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lowkey {

// A whole regular file, mapped read-only. The mapping lives as long as the object; any thread may
// read. The size is the one at opening: where another process cuts the file short, the rest of the
// map reads as zeros. So whoever has read the map asks CheckWhole, and what is read after loading
// goes through Read. Files should be replaced (written aside and renamed), never truncated in
// place.
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

  // Reads bytes that lie in the map, from the file. UNAVAILABLE, naming the file: the file has
  // become shorter, or cannot be read. Any thread may call.
  absl::Status Read(const std::byte* from, absl::Span<std::byte> out) const;
  // UNAVAILABLE, naming the file: it is shorter than at opening. What was read of the map may be
  // zeros then.
  absl::Status CheckWhole() const;
  // Lets the system take back the memory of what was read of these bytes of the map. They can be
  // read again.
  void Release(absl::Span<const std::byte> bytes) const;
  // Returns whether `bytes` lie in the map.
  bool Holds(absl::Span<const std::byte> bytes) const;

  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  // Returns whether both are one file, under one name or two.
  bool IsSameFile(const MappedFile& other) const {
    return device_ == other.device_ && inode_ == other.inode_;
  }
  // Returns when the file was modified last, as of its opening, in nanoseconds since 1970.
  int64_t modified_ns() const { return modified_ns_; }
  // The last component of the path, for messages.
  const std::string& name() const { return name_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_bytes_}; }

 private:
  MappedFile(int descriptor, const struct stat& info, std::string name)
      : descriptor_(descriptor),
        device_(info.st_dev),
        inode_(info.st_ino),
        modified_ns_(info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec),
        name_(std::move(name)) {}

  const int descriptor_;
  const dev_t device_;
  const ino_t inode_;
  const int64_t modified_ns_;
  const std::string name_;
  const std::byte* data_ = nullptr;  // null when the file is empty
  size_t size_bytes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_MAPPED_FILE_H_
