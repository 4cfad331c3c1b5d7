#ifndef LOWKEY_SERVER_GRPC_CANCEL_LINK_H_
#define LOWKEY_SERVER_GRPC_CANCEL_LINK_H_

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/text_service.h"

namespace lowkey {

// Carries a call's cancellation to the engine's requests, also when it comes before their ids are
// known. Thread-safe. Must not be used from the engine's thread.
class CancelLink {
 public:
  explicit CancelLink(TextService& service) : service_(service) {}

  void Submitted(std::vector<RequestId> ids) {
    {
      absl::MutexLock lock(&mutex_);
      ids_ = std::move(ids);
      if (!is_cancelled_) return;
    }
    Cancel();
  }

  void Cancel() {
    std::vector<RequestId> ids;
    {
      absl::MutexLock lock(&mutex_);
      is_cancelled_ = true;
      ids = ids_;
    }
    for (RequestId id : ids) service_.Cancel(id);
  }

 private:
  TextService& service_;
  absl::Mutex mutex_;
  std::vector<RequestId> ids_ ABSL_GUARDED_BY(mutex_);
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CANCEL_LINK_H_
