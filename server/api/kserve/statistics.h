#ifndef LOWKEY_SERVER_API_KSERVE_STATISTICS_H_
#define LOWKEY_SERVER_API_KSERVE_STATISTICS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "inference/grpc_service.pb.h"
#include "lowkey/v1/generation.pb.h"

namespace lowkey {

// Counts the requests of the inference service since the server started. Thread-safe.
class InferCounters {
 public:
  // A request ended well after this time.
  void AddSuccess(absl::Duration duration, const v1::Timings& timings);
  void AddFailure(absl::Duration duration);

  inference::ModelStatistics ToProto() const;

 private:
  struct Counter {
    void Add(absl::Duration duration) {
      ++n;
      time += duration;
    }
    uint64_t n = 0;
    absl::Duration time = absl::ZeroDuration();
  };

  mutable absl::Mutex mutex_;
  Counter success_ ABSL_GUARDED_BY(mutex_);
  Counter failure_ ABSL_GUARDED_BY(mutex_);
  Counter queue_ ABSL_GUARDED_BY(mutex_);
  Counter compute_ ABSL_GUARDED_BY(mutex_);
  absl::Time last_ ABSL_GUARDED_BY(mutex_) = absl::UnixEpoch();
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_STATISTICS_H_
