#ifndef LOWKEY_CLIENT_LIVE_CONTEXT_H_
#define LOWKEY_CLIENT_LIVE_CONTEXT_H_

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/clock.h"

namespace lowkey {

// The contexts of a client's calls, so that Cancel reaches them. Thread-safe.
class LiveContexts {
 public:
  // Ends the calls that run with CANCELLED, and every later one.
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    is_cancelled_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
  }

 private:
  friend class LiveContext;

  absl::Mutex mutex_;
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
};

// The context of one call, which `owner` can cancel while this lives.
class LiveContext {
 public:
  LiveContext(LiveContexts& owner, absl::Time deadline) : owner_(owner) {
    if (deadline != absl::InfiniteFuture()) {
      context_.set_deadline(absl::ToChronoTime(DateOf(deadline)));
    }
    absl::MutexLock lock(&owner_.mutex_);
    owner_.contexts_.insert(&context_);
    if (owner_.is_cancelled_) context_.TryCancel();
  }
  ~LiveContext() {
    absl::MutexLock lock(&owner_.mutex_);
    owner_.contexts_.erase(&context_);
  }
  LiveContext(const LiveContext&) = delete;
  LiveContext& operator=(const LiveContext&) = delete;

  grpc::ClientContext* get() { return &context_; }

 private:
  LiveContexts& owner_;
  grpc::ClientContext context_;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LIVE_CONTEXT_H_
