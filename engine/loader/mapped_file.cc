#include "engine/loader/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

absl::Status OpenError(const std::string& path) {
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno));
  if (errno == ENOENT || errno == ENOTDIR) return absl::NotFoundError(message);
  if (errno == EACCES || errno == EPERM) return absl::PermissionDeniedError(message);
  return absl::InvalidArgumentError(message);
}

// The kernel raises SIGBUS for a page of a map that its file no longer has.
void PutZeros(int, siginfo_t* info, void*) {
  static const auto page_bytes = static_cast<uintptr_t>(getpagesize());
  const int error = errno;
  void* const page =
      reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(info->si_addr) & ~(page_bytes - 1));
  const bool is_past_the_end = info->si_code == BUS_ADRERR;
  if (!is_past_the_end || mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                               -1, 0) == MAP_FAILED) {
    std::signal(SIGBUS, SIG_DFL);  // the fault comes again, and ends the process
  }
  errno = error;
}

void ReadPastTheEndAsZeros() {
  struct sigaction action = {};
  action.sa_sigaction = PutZeros;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

absl::Status HasBecomeShorter(const std::string& name) {
  return absl::UnavailableError(absl::StrCat(name, ": has become shorter since it was loaded"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path,
                                                                   size_t max_bytes) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return OpenError(path);
  struct stat info = {};
  const bool has_info = fstat(descriptor, &info) == 0;
  const int fstat_error = errno;
  // From here on the object closes the descriptor.
  const std::shared_ptr<MappedFile> file(
      new MappedFile(descriptor, info, path.substr(path.find_last_of('/') + 1)));
  if (!has_info) {
    errno = fstat_error;
    return OpenError(path);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  const size_t size_bytes = static_cast<size_t>(info.st_size);
  if (size_bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file->name(), ": ", size_bytes, " bytes, expected at most ", max_bytes));
  }
  if (size_bytes == 0) return file;
  [[maybe_unused]] static const bool once = (ReadPastTheEndAsZeros(), true);
  void* const data = mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": cannot map ", size_bytes, " bytes: ", std::strerror(errno)));
  }
  file->data_ = static_cast<const std::byte*>(data);
  file->size_bytes_ = size_bytes;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_bytes_);
  close(descriptor_);
}

absl::Status MappedFile::CheckWhole() const {
  struct stat info = {};
  const bool is_whole =
      fstat(descriptor_, &info) == 0 && static_cast<size_t>(info.st_size) >= size_bytes_;
  return is_whole ? absl::OkStatus() : HasBecomeShorter(name_);
}

void MappedFile::Release(absl::Span<const std::byte> bytes) const {
  static const auto page_bytes = static_cast<uintptr_t>(getpagesize());
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = (first + page_bytes - 1) / page_bytes * page_bytes;
  const uintptr_t end = (first + bytes.size()) / page_bytes * page_bytes;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool MappedFile::Holds(absl::Span<const std::byte> bytes) const {
  const std::less_equal<const std::byte*> is_at_most;
  return is_at_most(data_, bytes.data()) &&
         is_at_most(bytes.data() + bytes.size(), data_ + size_bytes_);
}

absl::Status MappedFile::Read(const std::byte* from, absl::Span<std::byte> out) const {
  off_t at = from - data_;
  while (!out.empty()) {
    const ssize_t n = pread(descriptor_, out.data(), out.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n == 0) return HasBecomeShorter(name_);
    if (n < 0) return absl::UnavailableError(absl::StrCat(name_, ": ", std::strerror(errno)));
    at += n;
    out.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
