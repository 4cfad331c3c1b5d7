#ifndef LOWKEY_SERVER_LIVE_REQUESTS_H_
#define LOWKEY_SERVER_LIVE_REQUESTS_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace lowkey {

// The request ids in use. Thread-safe.
class LiveRequests : public std::enable_shared_from_this<LiveRequests> {
 public:
  // An id that is taken until Release or destruction, whichever is first.
  class Claim {
   public:
    Claim(std::shared_ptr<LiveRequests> owner, std::string id);
    ~Claim() { Release(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    void Release();
    const std::string& id() const { return id_; }

   private:
    std::shared_ptr<LiveRequests> owner_;
    const std::string id_;
  };

  // ALREADY_EXISTS while another claim of the same id lives. The object must be in a shared_ptr.
  absl::StatusOr<std::unique_ptr<Claim>> Take(const std::string& id);

 private:
  absl::Mutex mutex_;
  absl::flat_hash_set<std::string> ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_LIVE_REQUESTS_H_
