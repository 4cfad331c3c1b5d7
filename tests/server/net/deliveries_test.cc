#include "server/net/deliveries.h"

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <vector>

namespace lowkey {
namespace {

TEST(DeliveriesTest, WaitForTheFlush) {
  const std::unique_ptr<EventLoop> loop = EventLoop::Start().value();
  Deliveries deliveries(/*gathers=*/true);
  std::vector<int> seen;
  for (int i = 0; i < 3; ++i) deliveries.Add(*loop, [&seen, i] { seen.push_back(i); });
  loop->PostAndWait([&seen] { EXPECT_TRUE(seen.empty()); });
  deliveries.Flush();
  loop->PostAndWait([&seen] { EXPECT_EQ(seen, (std::vector<int>{0, 1, 2})); });
  deliveries.Flush();
  loop->PostAndWait([&seen] { EXPECT_EQ(seen.size(), 3u); });
}

TEST(DeliveriesTest, GoAtOnceWhenNobodyFlushes) {
  const std::unique_ptr<EventLoop> loop = EventLoop::Start().value();
  Deliveries deliveries(/*gathers=*/false);
  bool has_run = false;
  deliveries.Add(*loop, [&has_run] { has_run = true; });
  loop->PostAndWait([&has_run] { EXPECT_TRUE(has_run); });
}

TEST(DeliveriesTest, LackOfMemoryEndsOnlyTheOneThatMeetsIt) {
  const std::unique_ptr<EventLoop> loop = EventLoop::Start().value();
  Deliveries deliveries(/*gathers=*/true);
  bool has_run = false;
  deliveries.Add(*loop, [] { throw std::bad_alloc(); });
  deliveries.Add(*loop, [&has_run] { has_run = true; });
  deliveries.Flush();
  loop->PostAndWait([&has_run] { EXPECT_TRUE(has_run); });
}

}  // namespace
}  // namespace lowkey
