#include "server/api/kserve/statistics.h"

#include "engine/base/clock.h"

namespace lowkey {

void InferCounters::AddSuccess(absl::Duration duration, const v1::Timings& timings) {
  const absl::MutexLock lock(&mutex_);
  success_.Add(duration);
  queue_.Add(absl::Microseconds(timings.queue_us()));
  compute_.Add(absl::Microseconds(timings.prefill_us() + timings.decode_us()));
  last_ = DateNow();
}

void InferCounters::AddFailure(absl::Duration duration) {
  const absl::MutexLock lock(&mutex_);
  failure_.Add(duration);
  last_ = DateNow();
}

inference::ModelStatistics InferCounters::ToProto() const {
  const absl::MutexLock lock(&mutex_);
  inference::ModelStatistics statistics;
  statistics.set_last_inference(static_cast<uint64_t>(absl::ToUnixMillis(last_)));
  statistics.set_inference_count(success_.n);
  statistics.set_execution_count(success_.n);
  const auto put = [](const Counter& counter, inference::StatisticDuration& proto) {
    proto.set_count(counter.n);
    proto.set_ns(static_cast<uint64_t>(absl::ToInt64Nanoseconds(counter.time)));
  };
  inference::InferStatistics& times = *statistics.mutable_inference_stats();
  put(success_, *times.mutable_success());
  put(failure_, *times.mutable_fail());
  put(queue_, *times.mutable_queue());
  put(compute_, *times.mutable_compute_infer());
  times.mutable_compute_input()->set_count(success_.n);
  times.mutable_compute_output()->set_count(success_.n);
  return statistics;
}

}  // namespace lowkey
