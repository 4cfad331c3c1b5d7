// Connections take turns, however much one of them sends, and all of them hear of a drain.
#include "server/front/front.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/front/ops.h"
#include "tests/server/front/http_get.h"

namespace lowkey {
namespace {

// Answers everything, and notes the paths in their order.
class NotingRouter final : public Router {
 public:
  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange, EventLoop&,
                                           const Peer&) const override {
    paths.push_back(exchange.head().path);
    return MakeTextAnswer(exchange, 200, "well");
  }

  mutable std::vector<std::string> paths;  // of the loop's thread
};

std::string Ask(const std::string& path) { return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"; }

class FrontTest : public ::testing::Test {
 protected:
  NotingRouter router_;
  HttpBudgets budgets_;
  const std::unique_ptr<Front> front_ = Front::Start(router_, budgets_, {}).value();
};

TEST_F(FrontTest, AFloodDelaysNobodyForLong) {
  constexpr int kFlood = 3000;
  RawConnection flood(front_->port()), other(front_->port());
  for (RawConnection* connection : {&flood, &other}) {
    connection->Send(Ask("/first"));
    ASSERT_TRUE(absl::StrContains(connection->ReadSome(), "well"));
  }
  absl::Notification go;
  front_->first_loop().Post([&go] { go.WaitForNotification(); });
  std::string asks;
  for (int i = 0; i < kFlood; ++i) asks += Ask("/flood");
  flood.Send(asks.substr(0, 100'000));
  other.Send(Ask("/other"));
  absl::SleepFor(absl::Milliseconds(100));
  go.Notify();
  EXPECT_TRUE(absl::StrContains(other.ReadSome(), "well"));
  front_->Close();
  size_t n_before = 0;
  while (n_before < router_.paths.size() && router_.paths[n_before] != "/other") ++n_before;
  ASSERT_LT(n_before, router_.paths.size());
  EXPECT_LT(n_before, 1000) << "of " << asks.size() / Ask("/flood").size();
}

TEST_F(FrontTest, ADrainTellsEveryClientAndAnswersWhoHasBegunToAsk) {
  const std::string goaway("\0\0\x08\x07", 4);
  RawConnection begun(front_->port()), silent(front_->port()), http2(front_->port());
  begun.Send("G");
  http2.Send(std::string(kHttp2Preface) + std::string("\0\0\0\4\0\0\0\0\0", 9));
  ASSERT_TRUE(absl::StrContains(HttpGet(front_->port(), "/first").text, "well"));
  front_->BeginDrain();
  ASSERT_TRUE(absl::StrContains(HttpGet(front_->port(), "/during").text, "well"));
  begun.Send(Ask("/begun").substr(1));
  silent.Send(Ask("/silent"));
  for (RawConnection* connection : {&begun, &silent}) {
    EXPECT_TRUE(absl::StrContains(connection->ReadToEnd(), "well"));
  }
  EXPECT_TRUE(absl::StrContains(http2.ReadToEnd(), goaway));
  EXPECT_TRUE(front_->AwaitIdle(absl::Now() + absl::Seconds(20)));
}

// Waits until the front's statistics are as `is_so` wants them.
bool AwaitStats(const Front& front, const std::function<bool(const NetworkStats&)>& is_so) {
  for (int i = 0; i < 2000; ++i) {
    if (is_so(front.Stats())) return true;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return false;
}

TEST_F(FrontTest, ConnectionsAreCountedByTheirProtocol) {
  {
    RawConnection silent(front_->port()), http1(front_->port()), http2(front_->port());
    http1.Send(Ask("/first"));
    http2.Send(std::string(kHttp2Preface) + std::string("\0\0\0\4\0\0\0\0\0", 9));
    EXPECT_TRUE(AwaitStats(*front_, [](const NetworkStats& stats) {
      return stats.n_undecided == 1 && stats.n_http1 == 1 && stats.n_http2 == 1;
    }));
    EXPECT_EQ(front_->Stats().n_opened, 3);
    EXPECT_FALSE(front_->Stats().certificate_end.has_value()) << "in clear";
  }
  EXPECT_TRUE(AwaitStats(*front_, [](const NetworkStats& stats) {
    return stats.n_undecided + stats.n_http1 + stats.n_http2 == 0;
  }));
  EXPECT_EQ(front_->Stats().n_opened, 3);
}

TEST(FrontStatsTest, ALoopThatIsBusySaysHowLate) {
  NotingRouter router;
  HttpBudgets budgets;
  absl::Mutex mutex;
  absl::Duration longest;
  FrontOptions options;
  options.on_loop_delay = [&](absl::Duration delay) {
    absl::MutexLock lock(&mutex);
    longest = std::max(longest, delay);
  };
  const auto front = Front::Start(router, budgets, options).value();
  front->first_loop().PostAndWait([] { absl::SleepFor(absl::Milliseconds(400)); });
  for (int i = 0; i < 2000; ++i) {
    {
      absl::MutexLock lock(&mutex);
      if (longest >= absl::Milliseconds(250)) return;
    }
    absl::SleepFor(absl::Milliseconds(10));
  }
  ADD_FAILURE() << "the longest delay is " << longest;
}

}  // namespace
}  // namespace lowkey
