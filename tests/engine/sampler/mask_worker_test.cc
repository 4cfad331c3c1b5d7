#include "engine/sampler/mask_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;

class Call : public MaskWorker::Task {
 public:
  explicit Call(std::function<void()> call) : call_(std::move(call)) {}

 private:
  void Run() override { call_(); }
  const std::function<void()> call_;
};

TEST(MaskWorkerTest, RunsTasksInTheirOrderOnAThreadOfItsOwn) {
  MaskWorker worker;
  std::vector<int> ran;
  std::thread::id thread;
  absl::Notification done;
  Call first([&] { ran.push_back(1); });
  Call second([&] { ran.push_back(2); });
  Call third([&] {
    thread = std::this_thread::get_id();
    done.Notify();
  });
  worker.Add(&first);
  worker.Add(&second);
  worker.Add(&third);
  done.WaitForNotification();
  worker.Join(&third);
  EXPECT_THAT(ran, ElementsAre(1, 2));
  EXPECT_NE(thread, std::this_thread::get_id());
}

TEST(MaskWorkerTest, JoinTakesBackWhatHasNotBegunAndWaitsForWhatHas) {
  MaskWorker worker;
  absl::Notification begun, open;
  bool has_ended = false, has_run = false;
  Call running([&] {
    begun.Notify();
    open.WaitForNotification();
    has_ended = true;
  });
  Call queued([&] { has_run = true; });
  worker.Add(&running);
  worker.Add(&queued);
  begun.WaitForNotification();
  worker.Join(&queued);
  open.Notify();
  worker.Join(&running);
  EXPECT_TRUE(has_ended);
  EXPECT_FALSE(has_run);
  worker.Join(&queued);  // is not queued
}

TEST(MaskWorkerTest, GoesOnAfterATaskThatThrew) {
  MaskWorker worker;
  absl::Notification done;
  Call thrower([] { throw std::runtime_error("fault"); });
  Call next([&] { done.Notify(); });
  worker.Add(&thrower);
  worker.Add(&next);
  done.WaitForNotification();
  worker.Join(&next);
}

TEST(MaskWorkerTest, WithoutTasksThereIsNoThread) { MaskWorker worker; }

}  // namespace
}  // namespace lowkey
