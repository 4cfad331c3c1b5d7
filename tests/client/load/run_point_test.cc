#include "client/load/run_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lowkey {
namespace {

using ::testing::Each;
using ::testing::Ge;

// Ends its streams on a thread of its own, each with one token.
class FakeTarget : public LoadTarget {
 public:
  FakeTarget() : thread_([this] { Loop(); }) {}
  ~FakeTarget() override {
    {
      absl::MutexLock lock(&mutex_);
      is_stopping_ = true;
    }
    thread_.join();
  }

  void Start(const GenerationRequest& request, std::function<void(StreamRecord)> on_end) override {
    StreamRecord record;
    record.started_s = MonotonicSeconds();
    absl::MutexLock lock(&mutex_);
    deadlines_.push_back(request.deadline);
    waiting_.emplace_back(record, std::move(on_end));
    max_in_flight_ = std::max(max_in_flight_, static_cast<int>(waiting_.size()) + n_ending_);
  }

  void Cancel() override {
    absl::MutexLock lock(&mutex_);
    is_held_ = false;
  }

  std::optional<ServerLoad> Poll() override {
    absl::MutexLock lock(&mutex_);
    if (!answers_) return std::nullopt;
    return ServerLoad{3, 2, ++n_polls_ == 1 ? 500 : 100, 1000};
  }

  int64_t n_tokens() const override { return 0; }

  void Hold() {
    absl::MutexLock lock(&mutex_);
    is_held_ = true;
  }
  void AwaitStarted(size_t n) {
    const auto has_started = [this, n]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return deadlines_.size() >= n;
    };
    absl::MutexLock lock(&mutex_, absl::Condition(&has_started));
  }
  void DoNotAnswer() {
    absl::MutexLock lock(&mutex_);
    answers_ = false;
  }
  int max_in_flight() {
    absl::MutexLock lock(&mutex_);
    return max_in_flight_;
  }
  std::vector<absl::Time> deadlines() {
    absl::MutexLock lock(&mutex_);
    return deadlines_;
  }

 private:
  void Loop() {
    const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return is_stopping_ || (!is_held_ && !waiting_.empty());
    };
    for (;;) {
      std::pair<StreamRecord, std::function<void(StreamRecord)>> next;
      {
        absl::MutexLock lock(&mutex_, absl::Condition(&has_work));
        if (waiting_.empty()) return;
        next = std::move(waiting_.front());
        waiting_.pop_front();
        n_ending_ = 1;
      }
      next.first.first_token_s = next.first.ended_s = MonotonicSeconds();
      next.first.n_output_tokens = 1;
      {
        absl::MutexLock lock(&mutex_);
        n_ending_ = 0;
      }
      next.second(std::move(next.first));
    }
  }

  absl::Mutex mutex_;
  bool is_held_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool answers_ ABSL_GUARDED_BY(mutex_) = true;
  int n_polls_ ABSL_GUARDED_BY(mutex_) = 0;
  int n_ending_ ABSL_GUARDED_BY(mutex_) = 0;
  int max_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::Time> deadlines_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<StreamRecord, std::function<void(StreamRecord)>>> waiting_
      ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

Workload SmallWorkload() {
  WorkloadOptions options;
  options.prompt_lengths = UniformLengths{2, 9};
  options.output_lengths = UniformLengths{1, 1};
  options.mix = {{"standard"}, {"atp"}};
  options.vocab_size = 50;
  options.context_tokens = 10;
  return Workload(options);
}

PointRun RunAll(FakeTarget& target, const PointOptions& options) {
  const absl::Notification cancelled;
  return RunPoint(SmallWorkload(), options, target, cancelled, [](const PointProgress&) {});
}

TEST(RunPointTest, ClosedLoopKeepsSoManyInFlightAndNoMore) {
  FakeTarget target;
  const PointRun run = RunAll(target, {.concurrency = 4, .n_requests = 60, .n_warmup = 10});
  ASSERT_EQ(run.records.size(), 60u);
  EXPECT_LE(target.max_in_flight(), 4);
  EXPECT_EQ(std::count_if(run.records.begin(), run.records.end(),
                          [](const RequestRecord& record) { return record.is_warmup; }),
            10);
  EXPECT_TRUE(run.generator.lags_ms.empty());
  for (const RequestRecord& record : run.records) {
    EXPECT_EQ(record.due_s, record.stream.started_s);
    EXPECT_GE(record.due_s, 0);
    EXPECT_GE(*record.stream.first_token_s, record.due_s);
  }
}

TEST(RunPointTest, OpenLoopDoesNotWaitForTheServer) {
  FakeTarget target;
  target.Hold();
  std::thread release([&target] {
    target.AwaitStarted(20);
    target.Cancel();
  });
  const PointRun run =
      RunAll(target, {.arrivals_s = std::vector<double>(20, 0.001), .n_requests = 20});
  release.join();
  ASSERT_EQ(run.records.size(), 20u);
  EXPECT_EQ(target.max_in_flight(), 20);
}

TEST(RunPointTest, OpenLoopStartsNothingBeforeItsArrival) {
  FakeTarget target;
  const PointRun run = RunAll(target, {.arrivals_s = {0.001, 0.01, 0.02, 0.02}, .n_requests = 4});
  ASSERT_EQ(run.records.size(), 4u);
  EXPECT_EQ(run.generator.lags_ms.size(), 4u);
  EXPECT_THAT(run.generator.lags_ms, Each(Ge(0)));
  for (const RequestRecord& record : run.records) EXPECT_GE(record.stream.started_s, record.due_s);
}

TEST(RunPointTest, NoRequestBeginsAfterTheDuration) {
  FakeTarget target;
  EXPECT_TRUE(RunAll(target, {.concurrency = 1, .n_requests = 5, .duration_s = 0}).records.empty());
}

TEST(RunPointTest, TimeoutBecomesEachRequestsDeadline) {
  FakeTarget target;
  RunAll(target, {.concurrency = 1, .n_requests = 1});
  RunAll(target, {.concurrency = 1, .n_requests = 1, .timeout_s = 3600});
  const std::vector<absl::Time> deadlines = target.deadlines();
  EXPECT_EQ(deadlines[0], absl::InfiniteFuture());
  EXPECT_LT(deadlines[1], absl::InfiniteFuture());
}

TEST(RunPointTest, CancellingEndsAPointInEitherLoop) {
  for (const PointOptions& options :
       {PointOptions{.concurrency = 3, .n_requests = 1000},
        PointOptions{.arrivals_s = {0, 0, 0, 80000}, .n_requests = 4}}) {
    FakeTarget target;
    target.Hold();
    absl::Notification cancelled;
    std::thread stopper([&] {
      target.AwaitStarted(3);
      cancelled.Notify();
      target.Cancel();
    });
    const PointRun run =
        RunPoint(SmallWorkload(), options, target, cancelled, [](const PointProgress&) {});
    stopper.join();
    EXPECT_EQ(run.records.size(), 3u);
  }
}

TEST(RunPointTest, ThePeakOfWhatTheServerTellsIsKept) {
  FakeTarget target;
  const PointRun run = RunAll(target, {.concurrency = 1, .n_requests = 1});
  ASSERT_TRUE(run.server.has_value());
  EXPECT_EQ(run.server->cache_bytes_used, 500);
  EXPECT_EQ(run.server->cache_bytes_total, 1000);
  EXPECT_EQ(run.server->n_running, 3);
  target.DoNotAnswer();
  EXPECT_FALSE(RunAll(target, {.concurrency = 1, .n_requests = 1}).server.has_value());
}

TEST(RunPointTest, TheLastReportOfProgressIsComplete) {
  FakeTarget target;
  const absl::Notification cancelled;
  PointProgress last;
  RunPoint(SmallWorkload(), {.concurrency = 2, .n_requests = 7}, target, cancelled,
           [&last](const PointProgress& progress) { last = progress; });
  EXPECT_EQ(last.n_ended, 7);
  EXPECT_EQ(last.n_total, 7);
  EXPECT_EQ(last.n_in_flight, 0);
  EXPECT_EQ(last.n_failed, 0);
  EXPECT_TRUE(last.ttft_ms.has_value());
}

}  // namespace
}  // namespace lowkey
