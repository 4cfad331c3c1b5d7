#include "engine/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr size_t kChunkBytes = 65536;

absl::StatusOr<std::string> ReadToEnd(int descriptor, const std::string& path, size_t max_bytes) {
  std::string content;
  while (content.size() <= max_bytes) {
    const size_t n_before = content.size();
    content.resize(n_before + kChunkBytes);
    const ssize_t n = read(descriptor, content.data() + n_before, kChunkBytes);
    if (n < 0 && errno != EINTR) return FileError(path, "cannot be read");
    content.resize(n_before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return content;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": over ", max_bytes, " bytes, expected at most that"));
}

}  // namespace

absl::Status FileError(const std::string& path, const char* what, int error) {
  const std::string text = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::FailedPreconditionError(text);
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t max_bytes) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return FileError(path, "cannot be read");
  const absl::Cleanup closer = [descriptor] { close(descriptor); };
  struct stat status = {};
  if (fstat(descriptor, &status) != 0) return FileError(path, "cannot be read");
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  return ReadToEnd(descriptor, path, max_bytes);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  if (path == "-") return ReadToEnd(STDIN_FILENO, path, max_bytes);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(path, "cannot be read");
  const absl::Cleanup closer = [descriptor] { close(descriptor); };
  return ReadToEnd(descriptor, path, max_bytes);
}

}  // namespace lowkey
