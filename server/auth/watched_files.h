#ifndef LOWKEY_SERVER_AUTH_WATCHED_FILES_H_
#define LOWKEY_SERVER_AUTH_WATCHED_FILES_H_

#include <sys/stat.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace lowkey {

// Returns whether everyone on the machine may read the file. False if there is no such file.
bool IsReadableByAll(const std::string& path);

// Tells when files change: replaced, rewritten, gone. Not thread-safe.
class WatchedFiles {
 public:
  explicit WatchedFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  // Returns whether a file has changed since the last call; true the first time. Also true while a
  // change is so fresh that another one could have the same time stamp. Costs a stat per file.
  bool HaveChanged();

 private:
  struct Stamp {
    bool operator==(const Stamp&) const = default;

    dev_t device = 0;
    ino_t inode = 0;
    off_t n_bytes = 0;
    absl::Time modified = absl::InfinitePast(), changed = absl::InfinitePast();
  };

  static Stamp StampOf(const std::string& path);

  const std::vector<std::string> paths_;
  std::vector<Stamp> stamps_;
  bool is_settled_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_WATCHED_FILES_H_
