#include "engine/loader/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

absl::Status OpenError(const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
  if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(message);
  if (errno == EACCES || errno == EPERM) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path,
                                                                   size_t max_bytes) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return OpenError(path);
  struct stat info;
  if (fstat(file.fd, &info) != 0) return OpenError(path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const size_t size_bytes = static_cast<size_t>(info.st_size);
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (size_bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", size_bytes, " bytes, expected at most ", max_bytes));
  }
  void* data = nullptr;
  if (size_bytes > 0) {
    data = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file.fd, 0);
    if (data == MAP_FAILED) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": cannot map ", size_bytes, " bytes: ", std::strerror(errno)));
    }
  }
  return std::shared_ptr<const MappedFile>(
      new MappedFile(std::move(name), static_cast<const std::byte*>(data), size_bytes));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_bytes_);
}

}  // namespace lowkey
