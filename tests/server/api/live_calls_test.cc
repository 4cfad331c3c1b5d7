#include "server/api/calls/live_calls.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>

namespace lowkey {
namespace {

TEST(LiveCallsTest, WaitsUntilTheLastCallIsGone) {
  auto calls = std::make_shared<LiveCalls>();
  EXPECT_TRUE(calls->AwaitNone(absl::InfinitePast()));
  std::optional<LiveCalls::Call> first, second;
  first.emplace(calls);
  second.emplace(calls);
  first.reset();
  EXPECT_FALSE(calls->AwaitNone(absl::InfinitePast()));
  auto done =
      std::async(std::launch::async, [calls] { return calls->AwaitNone(absl::InfiniteFuture()); });
  second.reset();
  EXPECT_TRUE(done.get());
}

TEST(LiveCallsTest, CallMayOutliveWhoeverCounts) {
  auto calls = std::make_shared<LiveCalls>();
  const LiveCalls::Call call(calls);
  calls.reset();
}

}  // namespace
}  // namespace lowkey
