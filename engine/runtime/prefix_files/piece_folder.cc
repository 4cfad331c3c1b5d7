#include "engine/runtime/prefix_files/piece_folder.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".piece";
constexpr char kAsideSuffix[] = ".part";
// The file of a process that died while it wrote is removed after so long.
constexpr int64_t kAsideSeconds = 600;
// Trim leaves this share of max_bytes, so that not every write calls for it.
constexpr double kKeptShare = 0.9;
// Other processes may write too: all files are measured again once so much of max_bytes was
// written.
constexpr int64_t kMeasuredParts = 16;

using PieceDigest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

PieceDigest DigestOf(const PieceKey& key, absl::Span<const std::byte> bytes) {
  PieceDigest of_bytes;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), of_bytes.data());
  std::array<unsigned char, sizeof(PieceKey) + sizeof(PieceDigest)> both;
  std::copy(key.begin(), key.end(), both.begin());
  std::copy(of_bytes.begin(), of_bytes.end(), both.begin() + key.size());
  PieceDigest digest;
  SHA256(both.data(), both.size(), digest.data());
  return digest;
}

bool ReadAll(int descriptor, void* to, size_t size) {
  auto* at = static_cast<char*>(to);
  while (size > 0) {
    const ssize_t n = read(descriptor, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool WriteAll(int descriptor, const void* from, size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const ssize_t n = write(descriptor, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

// Times of a file for utimensat.
struct FileTimes {
  explicit FileTimes(absl::Time used) : times{absl::ToTimespec(used), absl::ToTimespec(used)} {}

  timespec times[2];
};

// Sets when an open file was used, unless it was used later.
void NoteUse(int descriptor, absl::Time used) {
  struct stat info = {};
  if (fstat(descriptor, &info) != 0 || absl::TimeFromTimespec(info.st_mtim) >= used) return;
  futimens(descriptor, FileTimes(used).times);
}

// Says whether a name is one that we give; other files of the folder are nobody's business.
bool IsOurs(std::string_view name, std::string_view suffix) {
  constexpr size_t kDigits = 2 * sizeof(PieceKey);
  return name.size() > kDigits && name.ends_with(suffix) &&
         std::all_of(name.begin(), name.begin() + kDigits,
                     [](unsigned char c) { return absl::ascii_isxdigit(c); });
}

struct FileInfo {
  fs::path path;
  int64_t n_bytes = 0;
  std::pair<int64_t, int64_t> used;  // seconds and nanoseconds
};

// Returns our regular files in the folder with this suffix.
std::vector<FileInfo> ListFiles(const std::string& folder, std::string_view suffix) {
  std::vector<FileInfo> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (!IsOurs(at->path().filename().native(), suffix)) continue;
    struct stat info = {};
    if (lstat(at->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    files.push_back({at->path(), info.st_size, {info.st_mtim.tv_sec, info.st_mtim.tv_nsec}});
  }
  return files;
}

}  // namespace

absl::StatusOr<PieceFolder> PieceFolder::Open(std::string path, int64_t max_bytes) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return FileError(path, "cannot be made");
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return FileError(path, "cannot be read");
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": expected a folder"));
  }
  if (access(path.c_str(), R_OK | W_OK | X_OK) != 0) return FileError(path, "cannot be used");
  PieceFolder folder(std::move(path), max_bytes);
  LK_RETURN_IF_ERROR(folder.Trim());
  return folder;
}

std::string PieceFolder::PathOf(const PieceKey& key) const {
  return absl::StrCat(path_, "/", HexOf(key), kSuffix);
}

absl::StatusOr<std::optional<Buffer>> PieceFolder::Read(const PieceKey& key, absl::Time used,
                                                        int64_t max_bytes) const {
  using Piece = std::optional<Buffer>;
  const std::string path = PathOf(key);
  // Without O_NONBLOCK, opening a FIFO would wait for a writer.
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return Piece();
  const absl::Cleanup closer = [descriptor] { close(descriptor); };
  const auto wrong = [&path](const std::string& text) {
    unlink(path.c_str());
    return absl::DataLossError(absl::StrCat(path, ": ", text));
  };
  struct stat info = {};
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    return wrong("expected a regular file");
  }
  PieceDigest stated;
  const int64_t n_bytes = info.st_size - static_cast<int64_t>(stated.size());
  if (n_bytes < 0 || n_bytes > max_bytes) {
    return wrong(absl::StrCat(info.st_size, " bytes, expected ", stated.size(), " to ",
                              max_bytes + static_cast<int64_t>(stated.size())));
  }
  LK_ASSIGN_OR_RETURN(Buffer bytes, Buffer::Allocate(static_cast<size_t>(n_bytes)));
  if (!ReadAll(descriptor, stated.data(), stated.size()) ||
      !ReadAll(descriptor, bytes.data(), bytes.size_bytes())) {
    return wrong("has become shorter, or cannot be read");
  }
  if (stated != DigestOf(key, {bytes.data(), bytes.size_bytes()}))
    return wrong("its digest is not that of its bytes");
  NoteUse(descriptor, used);
  return Piece(std::move(bytes));
}

bool PieceFolder::Touch(const PieceKey& key, absl::Time used) const {
  const int descriptor = open(PathOf(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  NoteUse(descriptor, used);
  close(descriptor);
  return true;
}

absl::StatusOr<std::string> PieceFolder::WriteAside(const PieceKey& key, absl::Time used,
                                                    absl::Span<const std::byte> bytes) const {
  std::string path = absl::StrCat(path_, "/", HexOf(key), ".XXXXXX", kAsideSuffix);
  const int descriptor = mkostemps(path.data(), sizeof(kAsideSuffix) - 1, O_CLOEXEC);
  if (descriptor < 0) return FileError(path, "cannot be made");
  const absl::Cleanup closer = [descriptor] { close(descriptor); };
  const PieceDigest digest = DigestOf(key, bytes);
  if (WriteAll(descriptor, digest.data(), digest.size()) &&
      WriteAll(descriptor, bytes.data(), bytes.size())) {
    futimens(descriptor, FileTimes(used).times);
    return path;
  }
  const absl::Status status = FileError(path, "cannot be written");
  unlink(path.c_str());
  return status;
}

absl::Status PieceFolder::Write(const PieceKey& key, absl::Time used,
                                absl::Span<const std::byte> bytes) {
  const std::string path = PathOf(key);
  LK_ASSIGN_OR_RETURN(const std::string aside, WriteAside(key, used, bytes));
  if (std::rename(aside.c_str(), path.c_str()) != 0) {
    const absl::Status status = FileError(path, "cannot be made");
    unlink(aside.c_str());
    return status;
  }
  const auto n_bytes = static_cast<int64_t>(bytes.size() + sizeof(PieceDigest));
  n_bytes_ += n_bytes;
  n_written_ += n_bytes;
  const bool is_due = n_bytes_ > max_bytes_ || n_written_ > max_bytes_ / kMeasuredParts;
  return is_due ? Trim() : absl::OkStatus();
}

absl::Status PieceFolder::Trim() {
  for (const FileInfo& aside : ListFiles(path_, kAsideSuffix)) {
    if (std::time(nullptr) - aside.used.first > kAsideSeconds) unlink(aside.path.c_str());
  }
  std::vector<FileInfo> files = ListFiles(path_, kSuffix);
  n_bytes_ = n_written_ = 0;
  for (const FileInfo& file : files) n_bytes_ += file.n_bytes;
  if (n_bytes_ <= max_bytes_) return absl::OkStatus();
  std::sort(files.begin(), files.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.used < b.used; });
  const auto kept = static_cast<int64_t>(kKeptShare * static_cast<double>(max_bytes_));
  for (const FileInfo& file : files) {
    if (n_bytes_ <= kept) break;
    if (unlink(file.path.c_str()) != 0 && errno != ENOENT) {
      return FileError(file.path.string(), "cannot be removed");
    }
    n_bytes_ -= file.n_bytes;
  }
  return absl::OkStatus();
}

}  // namespace lowkey
