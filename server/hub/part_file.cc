#include "server/hub/part_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"

namespace lowkey {

absl::StatusOr<PartFile> PartFile::Open(const std::string& path, const HubFile& file,
                                        const std::function<bool()>& is_stopped) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor < 0) return FileError(path, "cannot be opened");
  PartFile part(path, file, descriptor);
  LK_RETURN_IF_ERROR(part.ReadWhatIsThere(is_stopped));
  return part;
}

PartFile::PartFile(PartFile&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      digest_(std::move(other.digest_)),
      n_bytes_(other.n_bytes_) {}

PartFile::~PartFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status PartFile::ReadWhatIsThere(const std::function<bool()>& is_stopped) {
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0) return FileError(path_, "cannot be read");
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": expected a regular file"));
  }
  if (status.st_size > file_.n_bytes) return Restart();
  std::vector<char> bytes(size_t{1} << 20);
  while (true) {
    if (is_stopped()) return absl::CancelledError("stopped");
    const ssize_t n = read(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(path_, "cannot be read");
    if (n == 0) return absl::OkStatus();
    n_bytes_ += n;
    if (n_bytes_ > file_.n_bytes) return Restart();
    digest_.Add({bytes.data(), static_cast<size_t>(n)});
  }
}

absl::Status PartFile::Restart() {
  if (ftruncate(descriptor_, 0) != 0 || lseek(descriptor_, 0, SEEK_SET) != 0) {
    return FileError(path_, "cannot be emptied");
  }
  n_bytes_ = 0;
  digest_ = Digest(file_);
  return absl::OkStatus();
}

absl::Status PartFile::Append(std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > file_.n_bytes - n_bytes_) {
    return absl::DataLossError(
        absl::StrCat("more bytes come than the ", file_.n_bytes, " that the hub lists"));
  }
  while (!bytes.empty()) {
    const ssize_t n = write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return FileError(path_, "cannot be written");
    digest_.Add(bytes.substr(0, static_cast<size_t>(n)));
    n_bytes_ += n;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status PartFile::Finish(const std::string& path) {
  const std::string digest = digest_.Take();
  if (!IsWhole() || digest != file_.digest) {
    const std::string text =
        absl::StrCat(n_bytes_, " bytes with ", file_.is_sha256 ? "SHA-256 " : "git's SHA-1 ",
                     digest, ", expected ", file_.n_bytes, " with ", file_.digest);
    LK_RETURN_IF_ERROR(Restart());
    return absl::DataLossError(text);
  }
  if (fsync(descriptor_) != 0) return FileError(path_, "cannot be written");
  if (std::rename(path_.c_str(), path.c_str()) != 0) return FileError(path, "cannot be made");
  return absl::OkStatus();
}

}  // namespace lowkey
