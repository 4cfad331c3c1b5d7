#ifndef LOWKEY_SERVER_AUTH_RELOADING_H_
#define LOWKEY_SERVER_AUTH_RELOADING_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "server/auth/watched_files.h"

namespace lowkey {

// A value from some files, which are read again when they have changed. Thread-safe.
template <typename T>
class Reloading {
 public:
  using Load = std::function<absl::StatusOr<T>()>;
  // Receives the status of a later load, with the lock held, when it is news or was asked for.
  using Report = std::function<void(const absl::Status&)>;

  // Fails with the first load's error.
  static absl::StatusOr<std::shared_ptr<Reloading>> Start(std::vector<std::string> paths, Load load,
                                                          Report report) {
    // This order shows a change during the load at the next Get.
    WatchedFiles files(std::move(paths));
    files.HaveChanged();
    LK_ASSIGN_OR_RETURN(T value, load());
    return std::shared_ptr<Reloading>(
        new Reloading(std::move(files), std::move(load), std::move(report), std::move(value)));
  }

  // Reads the files at once, changed or not; the report gets the outcome, news or not.
  void ReadAgain() {
    absl::MutexLock lock(&mutex_);
    files_.HaveChanged();
    Reload(true);
  }

  // Never null. Unusable files leave the value as it was.
  std::shared_ptr<const T> Get() {
    absl::MutexLock lock(&mutex_);
    if (files_.HaveChanged()) Reload(false);
    return value_;
  }

 private:
  Reloading(WatchedFiles files, Load load, Report report, T value)
      : files_(std::move(files)),
        load_(std::move(load)),
        report_(std::move(report)),
        value_(std::make_shared<const T>(std::move(value))) {}

  void Reload(bool is_asked) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::StatusOr<T> loaded = load_();
    const bool is_same = loaded.ok() && *loaded == *value_;
    if (loaded.ok() && !is_same) value_ = std::make_shared<const T>(*std::move(loaded));
    if (is_asked || loaded.status() != status_ || (loaded.ok() && !is_same)) {
      report_(loaded.status());
    }
    status_ = loaded.status();
  }

  absl::Mutex mutex_;
  WatchedFiles files_ ABSL_GUARDED_BY(mutex_);
  const Load load_;
  const Report report_;
  std::shared_ptr<const T> value_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_RELOADING_H_
