#include "server/auth/watched_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace lowkey {
namespace {

// Time stamps of files move in steps of a clock tick.
constexpr absl::Duration kStampStep = absl::Milliseconds(50);

absl::Status CannotRead(const std::string& path) {
  return absl::NotFoundError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  // A pipe must not keep the server waiting for its writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return CannotRead(path);
  const absl::Cleanup closer = [descriptor] { close(descriptor); };
  struct stat status;
  if (fstat(descriptor, &status) != 0) return CannotRead(path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  std::string content(max_bytes + 1, '\0');
  size_t n_bytes = 0;
  while (n_bytes < content.size()) {
    const ssize_t n = read(descriptor, content.data() + n_bytes, content.size() - n_bytes);
    if (n < 0) return CannotRead(path);
    if (n == 0) break;
    n_bytes += static_cast<size_t>(n);
  }
  if (n_bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": over ", max_bytes, " bytes, expected at most that"));
  }
  content.resize(n_bytes);
  return content;
}

bool IsReadableByAll(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0;
}

WatchedFiles::Stamp WatchedFiles::StampOf(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino, status.st_size, absl::TimeFromTimespec(status.st_mtim),
          absl::TimeFromTimespec(status.st_ctim)};
}

bool WatchedFiles::HaveChanged() {
  const absl::Time fresh = absl::Now() - kStampStep;
  std::vector<Stamp> stamps;
  bool is_settled = true;
  for (const std::string& path : paths_) {
    stamps.push_back(StampOf(path));
    is_settled &= stamps.back().changed < fresh;
  }
  const bool changed = !is_settled_ || stamps != stamps_;
  stamps_ = std::move(stamps);
  is_settled_ = is_settled;
  return changed;
}

}  // namespace lowkey
