// Requests are admitted by the time that steps took so far.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "engine/base/clock.h"
#include "engine/base/retry_after.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"
#include "tests/testing/set_clock.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class EngineAdmissionTest : public EngineTest {
 protected:
  // One place, and somebody who holds it until Release.
  void StartAndHold(EngineOptions options, int n_measured) {
    options.max_running_seqs = 1;
    Start(options);
    for (int i = 0; i < n_measured; ++i) Submit(Request(5, 20, i))->Wait();
    holder_ = Submit(Request(5, 200), [this](int32_t, int32_t) {
      if (!held_.HasBeenNotified()) held_.Notify();
      release_.WaitForNotification();
      return SinkAnswer::kContinue;
    });
    held_.WaitForNotification();
  }
  void Release() {
    if (!release_.HasBeenNotified()) release_.Notify();
  }
  ~EngineAdmissionTest() override { Release(); }

  int64_t NumRefused(QueueBound bound) const {
    return engine_->Stats().n_refused_by_bound[static_cast<size_t>(bound)];
  }

  absl::Notification held_, release_;
  std::shared_ptr<Collected> holder_;
};

TEST_F(EngineAdmissionTest, RefusesALongerWaitThanItsBoundAndSaysWhenToComeAgain) {
  EngineOptions options;
  options.max_wait = absl::Nanoseconds(1);
  StartAndHold(options, 3);
  const absl::Status status = Refused(Request(5, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("queue: a wait of "));
  EXPECT_GE(RetryAfterOf(status).value_or(absl::ZeroDuration()), absl::Milliseconds(100));
  EXPECT_EQ(NumRefused(QueueBound::kWait), 1);
  EXPECT_EQ(NumRefused(QueueBound::kRequests), 0);
}

TEST_F(EngineAdmissionTest, RefusesADeadlineThatCannotBeMet) {
  StartAndHold({}, 20);
  EngineRequest r = Request(200, 50);
  r.deadline = absl::Now() + absl::Microseconds(50);
  const absl::Status status = Refused(r);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("that it would take now"));
  r.deadline = absl::Now() + absl::Hours(1);
  const auto later = Submit(r);
  Release();
  EXPECT_TRUE(later->Wait().status.ok());
}

// Says whether a request ended because its forecast ends after its deadline.
bool IsForeseen(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) &&
         absl::StrContains(status.message(), "that it would take now");
}

// The demo model's prompts take long enough to tell their times from a pause of the machine.
TEST_F(EngineAdmissionTest, ADeadlineIsComparedWithTheRowsThatAreNotCached) {
  EngineOptions options;
  options.n_threads = 2;
  options.cache_bytes = 256 << 20;
  engine_ =
      CreateEngine(OpenCheckpoint(SourcePath("models/tales")).value(), options, nullptr).value();
  EXPECT_TRUE(Submit(Request(5, 20, 2))->Wait().status.ok());
  const absl::Time start = absl::Now();
  EXPECT_TRUE(Submit(Request(3000, 1))->Wait().status.ok());
  const absl::Duration whole = absl::Now() - start;
  EngineRequest cached = Request(3000, 1), other = Request(3000, 1, 1);
  cached.deadline = absl::Now() + whole / 3;
  EXPECT_FALSE(IsForeseen(Submit(cached)->Wait().status)) << whole;
  other.deadline = absl::Now() + whole / 10;
  // At once where even the fewest rows would take longer, else when the engine knows better.
  const auto collected = std::make_shared<Collected>();
  const auto id = engine_->Submit(other, std::make_unique<CollectingSink>(collected));
  EXPECT_TRUE(IsForeseen(id.ok() ? collected->Wait().status : id.status())) << whole;
}

TEST_F(EngineAdmissionTest, RefusesNothingBeforeStepsWereMeasured) {
  StartAndHold({}, 0);
  EngineRequest r = Request(5, 5);
  r.deadline = absl::Now() + absl::Hours(1);
  const auto waiting = Submit(r);
  Release();
  EXPECT_TRUE(waiting->Wait().status.ok());
}

TEST_F(EngineAdmissionTest, GivesUpWhatWaitedFarLongerThanTheBound) {
  EngineOptions options;
  options.max_wait = absl::Nanoseconds(1);
  StartAndHold(options, 0);
  const auto waiting = Submit(Request(5, 5, 1));
  Release();
  const absl::Status status = waiting->Wait().status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfterOf(status).has_value());
  EXPECT_TRUE(holder_->Wait().status.ok()) << "who runs does not wait";
}

TEST_F(EngineAdmissionTest, TheMachinesClockMayBeSetMeanwhile) {
  EngineOptions options;
  options.max_wait = absl::Minutes(5);
  StartAndHold(options, 0);
  EngineRequest request = Request(5, 5, 1);
  request.deadline = SteadyNow() + absl::Minutes(20);
  const auto waiting = Submit(request);
  SetClockAhead(absl::Hours(1));
  Release();
  for (const auto& collected : {holder_, waiting}) {
    const FinalEvent event = collected->Wait();
    EXPECT_TRUE(event.status.ok()) << event.status;
    const Timings& timings = event.timings;
    for (const int64_t us :
         {timings.queue_us, timings.prefill_us, timings.ttft_us, timings.decode_us}) {
      EXPECT_GE(us, 0);
      EXPECT_LT(us, absl::ToInt64Microseconds(absl::Minutes(30)));
    }
  }
  SetClockAhead(absl::ZeroDuration());
}

TEST_F(EngineAdmissionTest, AFullQueueSaysWhenToComeAgain) {
  EngineOptions options;
  options.max_queued_requests = 2;
  StartAndHold(options, 0);
  const auto a = Submit(Request(5, 5)), b = Submit(Request(5, 5));
  const absl::Status status = Refused(Request(5, 5));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfterOf(status).has_value());
  EXPECT_EQ(NumRefused(QueueBound::kRequests), 1);
  Release();
  a->Wait(), b->Wait();
}

TEST_F(EngineAdmissionTest, RefusalsAreCountedByTheBoundThatTheyWouldPass) {
  EngineOptions options;
  options.max_queued_prompt_tokens = 20;
  StartAndHold(options, 0);
  const auto waiting = Submit(Request(15, 5));
  EXPECT_EQ(Refused(Request(6, 5)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(NumRefused(QueueBound::kPromptTokens), 1);
  EngineRequest late = Request(1, 1);
  late.deadline = absl::Now() - absl::Seconds(1);
  late.sampling.temperature = -1;
  EXPECT_FALSE(Refused(late).ok());
  EXPECT_EQ(NumRefused(QueueBound::kRequests) + NumRefused(QueueBound::kWait), 0);
  Release();
  waiting->Wait();
}

TEST_F(EngineAdmissionTest, TenantsAndPrioritiesDecideWhoIsNext) {
  StartAndHold({}, 0);
  std::vector<std::string> order;  // the engine's thread writes, before every OnDone
  std::vector<std::shared_ptr<Collected>> all;
  const auto submit = [&](const std::string& name, const std::string& tenant, int32_t priority) {
    EngineRequest r = Request(5, 1);
    r.tenant = tenant;
    r.priority = priority;
    all.push_back(Submit(r, [&order, name](int32_t, int32_t) {
      order.push_back(name);
      return SinkAnswer::kContinue;
    }));
  };
  for (int i = 0; i < 3; ++i) submit("flood " + std::to_string(i), "flood", 0);
  submit("flood urgent", "flood", 100);
  submit("other", "other", 0);
  Release();
  for (const auto& got : all) EXPECT_TRUE(got->Wait().status.ok());
  EXPECT_THAT(order,
              testing::ElementsAre("flood urgent", "other", "flood 0", "flood 1", "flood 2"));
}

}  // namespace
}  // namespace lowkey
