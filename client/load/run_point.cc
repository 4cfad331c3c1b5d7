#include "client/load/run_point.h"

#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/clock.h"

namespace lowkey {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(5);
constexpr double kReportSeconds = 0.2;

double ProcessorSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The notification's timer runs by another clock and may end a little early by this one.
void WaitUntil(double time_s, const absl::Notification& cancelled) {
  double left_s = time_s - MonotonicSeconds();
  while (left_s > 0 && !cancelled.WaitForNotificationWithTimeout(absl::Seconds(left_s))) {
    left_s = time_s - MonotonicSeconds();
  }
}

// The records of a point as its streams end.
class Ledger {
 public:
  Ledger(const PointOptions& options, double start_s) : options_(options), start_s_(start_s) {}

  void Begin() {
    absl::MutexLock lock(&mutex_);
    ++n_in_flight_;
  }

  void End(RequestRecord record) {
    StreamRecord& stream = record.stream;
    stream.started_s -= start_s_;
    stream.ended_s -= start_s_;
    if (stream.first_token_s.has_value()) *stream.first_token_s -= start_s_;
    if (options_.arrivals_s.empty()) record.due_s = stream.started_s;
    absl::MutexLock lock(&mutex_);
    --n_in_flight_;
    n_failed_ += stream.status.ok() ? 0 : 1;
    if (stream.first_token_s.has_value()) {
      ttft_sum_ms_ += 1e3 * (*stream.first_token_s - record.due_s);
      ++n_ttfts_;
    }
    records_.push_back(std::move(record));
  }

  void WaitUntilFewerThan(int64_t n_in_flight) {
    const auto has_room = [this, n_in_flight]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return n_in_flight_ < n_in_flight;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&has_room));
  }

  // Returns the progress and starts a new mean of times to the first token.
  PointProgress Progress() {
    absl::MutexLock lock(&mutex_);
    PointProgress progress;
    progress.n_ended = static_cast<int64_t>(records_.size());
    progress.n_total = options_.n_requests;
    progress.n_in_flight = n_in_flight_;
    progress.n_failed = n_failed_;
    progress.elapsed_s = MonotonicSeconds() - start_s_;
    if (n_ttfts_ > 0) progress.ttft_ms = ttft_sum_ms_ / static_cast<double>(n_ttfts_);
    ttft_sum_ms_ = 0;
    n_ttfts_ = 0;
    return progress;
  }

  std::vector<RequestRecord> Take() {
    absl::MutexLock lock(&mutex_);
    return std::move(records_);
  }

 private:
  const PointOptions& options_;
  const double start_s_;
  absl::Mutex mutex_;
  std::vector<RequestRecord> records_ ABSL_GUARDED_BY(mutex_);
  int64_t n_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t n_failed_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t n_ttfts_ ABSL_GUARDED_BY(mutex_) = 0;
  double ttft_sum_ms_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Watches server and generator from its own thread and reports. If that thread sleeps a few
// milliseconds and wakes late, this machine is overloaded, and the times that the generator takes
// are late as well.
class Watcher {
 public:
  Watcher(LoadTarget& target, Ledger& ledger,
          const std::function<void(const PointProgress&)>& on_progress)
      : target_(target), ledger_(ledger), on_progress_(on_progress), thread_([this] { Loop(); }) {}

  // Takes a last look at the server before it returns.
  void Stop() {
    stop_.Notify();
    thread_.join();
  }

  std::vector<double>& wakes_ms() { return wakes_ms_; }
  std::optional<ServerLoad> server() const { return server_; }

 private:
  void Loop() {
    double reported_s = MonotonicSeconds();
    int64_t n_tokens = target_.n_tokens();
    Poll();
    bool is_stopped = false;
    while (!is_stopped) {
      const double slept_s = MonotonicSeconds();
      is_stopped = stop_.WaitForNotificationWithTimeout(kTick);
      const double now_s = MonotonicSeconds();
      if (!is_stopped) {
        wakes_ms_.push_back(
            std::max(0.0, 1e3 * (now_s - slept_s) - absl::ToDoubleMilliseconds(kTick)));
        if (now_s - reported_s < kReportSeconds) continue;
      }
      Poll();
      PointProgress progress = ledger_.Progress();
      progress.tokens_per_s =
          static_cast<double>(target_.n_tokens() - n_tokens) / (now_s - reported_s);
      on_progress_(progress);
      n_tokens = target_.n_tokens();
      reported_s = now_s;
    }
  }

  void Poll() {
    const std::optional<ServerLoad> load = target_.Poll();
    if (!load.has_value()) return;
    if (!server_.has_value()) server_.emplace();
    server_->n_running = std::max(server_->n_running, load->n_running);
    server_->n_waiting = std::max(server_->n_waiting, load->n_waiting);
    server_->cache_bytes_used = std::max(server_->cache_bytes_used, load->cache_bytes_used);
    server_->cache_bytes_total = load->cache_bytes_total;
  }

  LoadTarget& target_;
  Ledger& ledger_;
  const std::function<void(const PointProgress&)>& on_progress_;
  absl::Notification stop_;
  std::vector<double> wakes_ms_;
  std::optional<ServerLoad> server_;  // the peak of each figure
  std::thread thread_;
};

}  // namespace

PointRun RunPoint(const Workload& workload, const PointOptions& options, LoadTarget& target,
                  const absl::Notification& cancelled,
                  const std::function<void(const PointProgress&)>& on_progress) {
  PointRun run;
  const double start_s = MonotonicSeconds(), processor_s = ProcessorSeconds();
  Ledger ledger(options, start_s);
  Watcher watcher(target, ledger, on_progress);
  const bool is_open = !options.arrivals_s.empty();
  for (int64_t i = 0; i < options.n_requests; ++i) {
    RequestRecord record;
    PlannedRequest planned = workload.At(options.point, i);
    if (is_open) {
      record.due_s = options.arrivals_s[static_cast<size_t>(i)];
      WaitUntil(start_s + record.due_s, cancelled);
    } else {
      ledger.WaitUntilFewerThan(options.concurrency);
    }
    const double now_s = MonotonicSeconds() - start_s;
    if (cancelled.HasBeenNotified() || now_s > options.duration_s) break;
    if (is_open) run.generator.lags_ms.push_back(1e3 * (now_s - record.due_s));
    record.mix_index = planned.mix_index;
    record.n_prompt_tokens = planned.n_prompt_tokens;
    record.is_cut = planned.is_cut;
    record.is_warmup = i < options.n_warmup;
    if (options.timeout_s.has_value()) {
      planned.request.deadline = SteadyNow() + absl::Seconds(*options.timeout_s);
    }
    ledger.Begin();
    target.Start(planned.request, [&ledger, record](StreamRecord stream) mutable {
      record.stream = std::move(stream);
      ledger.End(std::move(record));
    });
  }
  ledger.WaitUntilFewerThan(1);
  run.generator.cpu_cores = (ProcessorSeconds() - processor_s) / (MonotonicSeconds() - start_s);
  watcher.Stop();
  run.generator.wakes_ms = std::move(watcher.wakes_ms());
  run.server = watcher.server();
  run.records = ledger.Take();
  return run;
}

}  // namespace lowkey
