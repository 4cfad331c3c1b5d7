#include "server/rpc/call.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lowkey/v1/generation.pb.h"
#include "server/rpc/health.h"
#include "tests/server/rpc/call_testing.h"

namespace lowkey {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

constexpr char kMethod[] = "/lowkey.v1.Generation/Tokenize";
constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

// Keeps its message until its end; the test ends it.
class KeepingHandler final : public RpcHandler {
 public:
  KeepingHandler(RpcStream& stream, std::vector<RpcStream*>& streams) {
    streams.push_back(&stream);
  }
  void OnMessage(RpcMessage message) override { message_ = std::move(message); }
  void OnHalfClose() override {}

 private:
  RpcMessage message_;
};

class RpcCallTest : public testing::Test {
 protected:
  RpcCallTest() {
    const auto& service =
        *v1::TokenizeRequest::descriptor()->file()->FindServiceByName("Generation");
    registry_.Add(*service.FindMethodByName("Tokenize"), [this](RpcStream& stream) {
      return std::make_unique<KeepingHandler>(stream, streams_);
    });
    limits_.max_connection_body_bytes = 100'000;
    Restart();
  }

  void Restart() { session_ = MakeHttp2Session(host_, limits_, budgets_, now_); }
  void Talk() { client_.Talk(*session_, now_); }

  static std::string Message(size_t n_bytes) {
    v1::TokenizeRequest request;
    request.set_text(std::string(n_bytes, 'a'));
    return request.SerializeAsString();
  }
  // Begins a call with a whole message or a part of it.
  int32_t Send(std::string_view body, const char* method = kMethod) {
    const int32_t id = client_.Begin(CallFields(method));
    client_.AddBody(id, body);
    Talk();
    return id;
  }
  std::string StatusOf(int32_t id) { return ValueOf(client_.answers[id], "grpc-status"); }

  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start().value();
  std::vector<RpcStream*> streams_;
  RpcRegistry registry_;
  RpcHealth health_{registry_};
  RpcHost host_{registry_, *loop_};
  HttpLimits limits_;
  HttpBudgets budgets_{.bodies = ByteBudget(150'000)};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  H2Client client_;
  std::unique_ptr<HttpSession> session_;
};

TEST_F(RpcCallTest, HoldsAMessagesMemoryFromItsPrefixToItsEnd) {
  const std::string body = Framed(Message(60'000));
  const int32_t id = Send(body.substr(0, 100));
  EXPECT_EQ(budgets_.bodies.left(), 150'000 - static_cast<int64_t>(body.size() - kRpcPrefixBytes));
  client_.AddBody(id, body.substr(100));
  client_.EndBody(id);
  Talk();
  EXPECT_LT(budgets_.bodies.left(), 100'000) << "the handler keeps it";
  streams_.back()->Finish(absl::OkStatus());
  Talk();
  EXPECT_EQ(StatusOf(id), "0");
  EXPECT_EQ(budgets_.bodies.left(), 150'000);
}

TEST_F(RpcCallTest, GivesTheMemoryOfACancelledMessageBack) {
  const int32_t id = Send(Framed(Message(60'000)).substr(0, 100));
  client_.Cancel(id);
  Talk();
  EXPECT_EQ(budgets_.bodies.left(), 150'000);
}

TEST_F(RpcCallTest, OneConnectionHoldsNoMoreThanItsShare) {
  Send(Framed(Message(60'000)));
  const int32_t refused = Send(Framed(Message(60'000)).substr(0, 100));
  EXPECT_EQ(StatusOf(refused), "8");
  EXPECT_EQ(ValueOf(client_.answers[refused], "grpc-retry-pushback-ms"), "1000");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kBodyMemory], 1);
  EXPECT_THAT(streams_, SizeIs(2));
  streams_.front()->Finish(absl::OkStatus());
  Talk();
  EXPECT_EQ(StatusOf(Send(Framed(Message(60'000)).substr(0, 100))), "") << "there is room again";
}

TEST_F(RpcCallTest, AllConnectionsShareTheRest) {
  Send(Framed(Message(90'000)));
  H2Client other;
  const auto second = MakeHttp2Session(host_, limits_, budgets_, now_);
  const int32_t id = other.Begin(CallFields(kMethod));
  other.AddBody(id, Framed(Message(90'000)).substr(0, 100));
  other.Talk(*second, now_);
  EXPECT_EQ(ValueOf(other.answers[id], "grpc-status"), "8");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kBodyMemory], 1);
}

// Else those who stall could take all of it.
TEST_F(RpcCallTest, ShortMessagesTakeNothing) {
  budgets_.bodies.Take(150'000);
  EXPECT_EQ(StatusOf(Send(Framed(Message(500)))), "");
  EXPECT_THAT(host_.refusals, IsEmpty());
}

TEST_F(RpcCallTest, StrangersMessagesAreShort) {
  const int32_t id = Send(RpcPrefix(600) + "a", kCheck);
  EXPECT_EQ(StatusOf(id), "8");
  EXPECT_EQ(host_.refusals[NetworkRefusal::kBodySize], 1);
  EXPECT_EQ(budgets_.bodies.left(), 150'000);
  const int32_t good = Send(Framed(""), kCheck);
  client_.EndBody(good);
  Talk();
  EXPECT_EQ(StatusOf(good), "0");
}

}  // namespace
}  // namespace lowkey
