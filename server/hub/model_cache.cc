#include "server/hub/model_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kLockPoll = absl::Milliseconds(100);
constexpr size_t kMaxListingBytes = size_t{64} << 20;

bool IsFileOf(const std::string& path, int64_t n_bytes) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == n_bytes;
}

absl::Status MakeFolder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? FileError(path.string(), "cannot be made", error.value()) : absl::OkStatus();
}

absl::Status MakeFolderOf(const std::string& file) {
  return MakeFolder(fs::path(file).parent_path());
}

// Writes a file that appears whole.
absl::Status WriteFile(const std::string& path, const std::string& text) {
  LK_RETURN_IF_ERROR(MakeFolderOf(path));
  const std::string temporary = path + ".new";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << text;
    out.close();
    if (!out) return FileError(temporary, "cannot be written");
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return FileError(path, "cannot be made");
  return absl::OkStatus();
}

}  // namespace

CacheLock::~CacheLock() {
  if (descriptor_ >= 0) close(descriptor_);
}

ModelCache::ModelCache(const std::string& root, const ModelReference& reference)
    : folder_(absl::StrCat(root, "/models--", reference.owner, "--", reference.name)),
      lock_folder_(absl::StrCat(root, "/.locks/models--", reference.owner, "--", reference.name)) {}

std::string ModelCache::SnapshotPath(const std::string& commit) const {
  return absl::StrCat(folder_, "/snapshots/", commit);
}

std::string ModelCache::BlobPath(const HubFile& file) const {
  return absl::StrCat(folder_, "/blobs/", file.digest);
}

std::string ModelCache::ListingPath(const std::string& commit) const {
  return absl::StrCat(folder_, "/lowkey/", commit, ".json");
}

bool ModelCache::HasFile(const std::string& commit, const HubFile& file) const {
  return IsFileOf(absl::StrCat(SnapshotPath(commit), "/", file.path), file.n_bytes);
}

bool ModelCache::HasBlob(const HubFile& file) const {
  return IsFileOf(BlobPath(file), file.n_bytes);
}

std::optional<std::string> ModelCache::ReadRevision(const std::string& revision) const {
  if (IsCommit(revision)) return revision;
  const auto text = ReadWholeFile(absl::StrCat(folder_, "/refs/", revision), 1024);
  if (!text.ok()) return std::nullopt;
  const std::string commit(absl::StripAsciiWhitespace(*text));
  return IsCommit(commit) ? std::optional(commit) : std::nullopt;
}

bool ModelCache::HasListing(const std::string& commit) const {
  std::error_code error;
  return fs::is_regular_file(ListingPath(commit), error);
}

std::vector<HubFile> ModelCache::ReadListing(const std::string& commit) const {
  const std::string path = ListingPath(commit);
  if (const auto text = ReadWholeFile(path, kMaxListingBytes); text.ok()) {
    auto files = ParseListing(*text, path);
    if (files.ok() && CheckListing(*files, path).ok()) return *std::move(files);
  }
  std::vector<HubFile> files;
  std::error_code error;
  const fs::path snapshot = SnapshotPath(commit);
  fs::recursive_directory_iterator at(snapshot, error), end;
  for (; !error && at != end && files.size() < kMaxListedFiles; at.increment(error)) {
    std::error_code no_file;  // a link whose blob is gone
    const uintmax_t n_bytes = at->is_regular_file(no_file) ? at->file_size(no_file) : 0;
    if (no_file || !at->is_regular_file(no_file)) continue;
    HubFile file;
    file.path = at->path().lexically_relative(snapshot).generic_string();
    file.n_bytes = static_cast<int64_t>(n_bytes);
    if (IsSafePath(file.path)) files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  return files;
}

absl::Status ModelCache::MakeFolders(const std::string& commit) const {
  LK_RETURN_IF_ERROR(MakeFolder(folder_ + "/blobs"));
  return MakeFolder(SnapshotPath(commit));
}

absl::Status ModelCache::WriteRevision(const std::string& revision,
                                       const std::string& commit) const {
  if (ReadRevision(revision) == commit) return absl::OkStatus();
  return WriteFile(absl::StrCat(folder_, "/refs/", revision), commit);
}

absl::Status ModelCache::WriteListing(const std::string& commit,
                                      const std::vector<HubFile>& files) const {
  return WriteFile(ListingPath(commit), ListingText(files));
}

absl::Status ModelCache::LinkFile(const std::string& commit, const HubFile& file) const {
  const std::string path = absl::StrCat(SnapshotPath(commit), "/", file.path);
  LK_RETURN_IF_ERROR(MakeFolderOf(path));
  // The blob, seen from the link's folder.
  std::string target = "../../";
  for (const char c : file.path) target += c == '/' ? "../" : "";
  absl::StrAppend(&target, "blobs/", file.digest);
  const std::string temporary = path + ".new";
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0) return FileError(path, "cannot be linked");
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return FileError(path, "cannot be linked");
  return absl::OkStatus();
}

absl::StatusOr<CacheLock> ModelCache::Lock(const std::function<bool()>& is_stopped,
                                           const std::function<void()>& on_wait) const {
  const std::string path = lock_folder_ + "/lowkey.lock";
  LK_RETURN_IF_ERROR(MakeFolderOf(path));
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) return FileError(path, "cannot be opened");
  CacheLock lock(descriptor);
  bool has_waited = false;
  while (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return FileError(path, "cannot be locked");
    if (is_stopped()) return absl::CancelledError("stopped");
    if (!std::exchange(has_waited, true)) on_wait();
    absl::SleepFor(kLockPoll);
  }
  return lock;
}

absl::Status ModelCache::CheckSpace(int64_t n_bytes) const {
  struct statvfs status = {};
  if (statvfs(folder_.c_str(), &status) != 0) return FileError(folder_, "its disk is not known");
  const double n_free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize);
  if (static_cast<double>(n_bytes) <= n_free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(folder_, ": ", static_cast<int64_t>(n_free),
                                                   " bytes are free, expected ", n_bytes,
                                                   " for what is missing of the model"));
}

}  // namespace lowkey
