// Calls that meet a lack of memory, at every allocation that the server makes for them.

#include <gtest/gtest.h>

#include <functional>
#include <new>

#include "grpc/health/v1/health.pb.h"
#include "server/rpc/health.h"
#include "server/rpc/reflection.h"
#include "tests/server/rpc/call_testing.h"
#include "tests/testing/failing_new.h"

namespace lowkey {
namespace {

// Counts the allocations of a session, and ends it when it throws, as a connection does.
class CountedSession final : public HttpSession {
 public:
  explicit CountedSession(const std::function<std::unique_ptr<HttpSession>()>& make) {
    Run([&] { session_ = make(); });
  }

  void Receive(std::string_view bytes, absl::Time now) override {
    Run([&] { session_->Receive(bytes, now); });
  }
  void ReceiveEnd(absl::Time now) override {
    Run([&] { session_->ReceiveEnd(now); });
  }
  void Produce(size_t max_bytes, std::string& out, absl::Time now) override {
    if (session_ != nullptr) Run([&] { session_->Produce(max_bytes, out, now); });
  }
  void OnTick(absl::Time now) override {
    Run([&] { session_->OnTick(now); });
  }
  void BeginDrain() override {
    Run([&] { session_->BeginDrain(); });
  }
  bool has_told() const override { return is_over() || session_->has_told(); }
  bool wants_input() const override { return !is_over() && session_->wants_input(); }
  bool has_output() const override { return session_ != nullptr && session_->has_output(); }
  bool is_over() const override { return session_ == nullptr || session_->is_over(); }
  size_t n_exchanges() const override { return is_over() ? 0 : session_->n_exchanges(); }
  bool is_trusted() const override { return false; }

 private:
  template <typename Work>
  void Run(const Work& work) {
    const Exemption none(false);
    try {
      work();
    } catch (const std::bad_alloc&) {
      session_ = nullptr;
    }
  }

  std::unique_ptr<HttpSession> session_;
};

class CallMemoryTest : public testing::Test {
 protected:
  CallMemoryTest() { AddReflection(registry_); }

  // One call over a connection of its own; returns grpc-status, or "" where the call was cut off.
  std::string Call(const std::string& path, const std::string& message) {
    H2Client client;
    CountedSession session([&] { return MakeHttp2Session(host_, limits_, budgets_, now_); });
    const int32_t id = client.Send(CallFields(path), Framed(message));
    client.Talk(session, now_);
    const H2Client::Answer answer = client.answers[id];
    EXPECT_TRUE(answer.is_closed || session.is_over()) << "the call hangs";
    return answer.is_closed ? ValueOf(answer, "grpc-status") : "";
  }

  void FailEverywhere(const std::string& path, const std::string& message,
                      const std::string& good_status) {
    const Exemption exempt;
    ASSERT_EQ(Call(path, message), good_status);  // what is made once is made
    FailAllocation(0);
    ASSERT_EQ(Call(path, message), good_status);
    const int64_t n_allocations = NumAllocations();
    ASSERT_GT(n_allocations, 10);
    int n_refused = 0;
    for (int64_t n = 1; n <= n_allocations; ++n) {
      SCOPED_TRACE(n);
      FailAllocation(n);
      const std::string status = Call(path, message);
      EXPECT_TRUE(status == good_status || status == "8" || status.empty()) << status;
      n_refused += status == "8";
      FailAllocation(0);
      ASSERT_EQ(Call(path, message), good_status) << "the next call works";
      ASSERT_EQ(budgets_.answers.left(), HttpBudgets().answers.left());
      ASSERT_EQ(budgets_.bodies.left(), HttpBudgets().bodies.left());
    }
    EXPECT_GT(n_refused, 0);
  }

  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start().value();
  RpcRegistry registry_;
  RpcHealth health_{registry_};
  RpcHost host_{registry_, *loop_};
  HttpLimits limits_;
  HttpBudgets budgets_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
};

TEST_F(CallMemoryTest, EndsTheCallThatIsAnsweredAtOnce) {
  FailEverywhere("/grpc.health.v1.Health/Check", "", "0");
}

TEST_F(CallMemoryTest, EndsTheCallWithALongMessage) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(std::string(500, 'a'));
  FailEverywhere("/grpc.health.v1.Health/Check", request.SerializeAsString(), "5");
}

TEST_F(CallMemoryTest, EndsTheStream) {
  // Field 7, list_services.
  FailEverywhere("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                 std::string("\x3A\x00", 2), "0");
}

TEST_F(CallMemoryTest, EndsTheCallThatIsRefused) { FailEverywhere("/no/method", "", "12"); }

}  // namespace
}  // namespace lowkey
