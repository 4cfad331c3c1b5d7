#include "server/auth/watched_files.h"

#include "engine/base/clock.h"

namespace lowkey {
namespace {

// Time stamps of files move in steps of a clock tick.
constexpr absl::Duration kStampStep = absl::Milliseconds(50);

}  // namespace

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
  const absl::Time fresh = DateNow() - kStampStep;
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
