// Admin's methods, called as from this machine and from others.
#include "server/api/lowkey/services.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "tests/server/fake_engine.h"
#include "tests/server/rpc/call_testing.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class AdminTest : public ::testing::Test {
 protected:
  // Calls Drain over a connection of that peer. Returns the answer.
  H2Client::Answer Drain(bool may_anyone_drain, const Peer& peer) {
    RpcRegistry registry;
    AddAdminService(registry, context_,
                    {.begin_drain = [this] { ++n_drains_; }, .may_anyone_drain = may_anyone_drain});
    RpcHost host(registry, *loop_);
    host.peer = peer;
    H2Client client;
    const int32_t id = client.Send(CallFields("/lowkey.v1.Admin/Drain"), Framed(""));
    std::unique_ptr<HttpSession> session;
    loop_->PostAndWait([&] { session = MakeHttp2Session(host, limits_, budgets_, absl::Now()); });
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!client.answers[id].is_closed && absl::Now() < end) {
      loop_->PostAndWait([&] { client.Talk(*session, absl::Now()); });
    }
    loop_->PostAndWait([&] { session.reset(); });
    return client.answers[id];
  }

  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}, {}, nullptr}};
  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start().value();
  WorkerPool pool_{1, 16};
  const RpcWorkers workers_{pool_, [](NetworkRefusal) {}};
  Deliveries deliveries_{/*gathers=*/false};
  const GenerationContext context_{service_,
                                   workers_,
                                   deliveries_,
                                   std::make_shared<LiveCalls>(),
                                   std::make_shared<LiveCalls>(),
                                   std::make_shared<PausedCalls>()};
  const HttpLimits limits_ = {};
  HttpBudgets budgets_;
  int n_drains_ = 0;
};

const Peer kHere = {"127.0.0.1:4711", "127.0.0.1", /*is_loopback=*/true};
const Peer kElsewhere = {"192.0.2.7:4711", "192.0.2.7", /*is_loopback=*/false};

TEST_F(AdminTest, WithoutTokensOnlyThisMachineMayDrain) {
  const H2Client::Answer refused = Drain(false, kElsewhere);
  EXPECT_EQ(ValueOf(refused, "grpc-status"), "7");
  EXPECT_THAT(ValueOf(refused, "grpc-message"), HasSubstr("192.0.2.7:4711"));
  EXPECT_EQ(n_drains_, 0);
  EXPECT_EQ(ValueOf(Drain(false, kHere), "grpc-status"), "0");
  EXPECT_EQ(n_drains_, 1);
}

TEST_F(AdminTest, WithTokensTheTokensRightDecides) {
  EXPECT_EQ(ValueOf(Drain(true, kElsewhere), "grpc-status"), "0");
  EXPECT_EQ(n_drains_, 1);
}

// A loop takes a small request itself, and a few that come right behind it.
TEST(RpcWorkersTest, ALoopMayRunWorkOnceAMillisecondAndEightTimesAtOnce) {
  WorkerPool pool(1, 1);
  const RpcWorkers workers{pool, [](NetworkRefusal) {}};
  int n_allowed = 0;
  const absl::Time start = absl::Now();
  for (int i = 0; i < 1000; ++i) n_allowed += workers.MayRunOnLoop() ? 1 : 0;
  EXPECT_GE(n_allowed, 8);
  EXPECT_LE(n_allowed, 9 + absl::ToInt64Milliseconds(absl::Now() - start));
  absl::SleepFor(absl::Milliseconds(10));
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(workers.MayRunOnLoop());
}

}  // namespace
}  // namespace lowkey
