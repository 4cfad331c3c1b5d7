// Connections take turns, however much one of them sends, and all of them hear of a drain.
#include "server/front/front.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
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

}  // namespace
}  // namespace lowkey
