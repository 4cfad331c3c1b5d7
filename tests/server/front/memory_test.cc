// Requests to a whole server that meet a lack of memory, at every allocation on any of its threads.

#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/contained.h"
#include "lowkey/v1/generation.pb.h"
#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/rpc/frames.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/http/h2_client.h"
#include "tests/server/net/sockets.h"
#include "tests/server/testing.h"
#include "tests/testing/failing_new.h"

namespace lowkey {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(20);

// The server's end of a socket, as a session that the client talks to.
class SocketSession final : public HttpSession {
 public:
  explicit SocketSession(int port) { is_over_ = !Connect(socket_, port); }

  void Receive(std::string_view bytes, absl::Time) override { is_over_ = !SendAll(socket_, bytes); }
  void Produce(size_t max_bytes, std::string& out, absl::Time) override {
    if (is_over_) return;
    pollfd readable = {socket_.get(), POLLIN, 0};
    if (poll(&readable, 1, 2) <= 0) return;
    std::string buffer(max_bytes, '\0');
    const ssize_t n = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n > 0) out.append(buffer, 0, static_cast<size_t>(n));
    is_over_ = n <= 0;
  }
  void ReceiveEnd(absl::Time) override {}
  void OnTick(absl::Time) override {}
  void BeginDrain() override {}
  bool has_told() const override { return true; }
  bool wants_input() const override { return !is_over_; }
  bool has_output() const override { return !is_over_; }
  bool is_over() const override { return is_over_; }
  size_t n_exchanges() const override { return 0; }
  bool is_trusted() const override { return false; }

 private:
  const OwnedSocket socket_ = MakeClientSocket();
  bool is_over_ = false;
};

class ServerMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::Start(service_, {.port = 0, .max_connections = 4});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // An exception ends the request here, as it does in the engine.
  void ServeRequests() {
    for (const RequestId id : engine_.ids()) {
      try {
        const Exemption none(false);
        for (int i = 0; i < 3; ++i) engine_.Emit(id, token_);
      } catch (const std::bad_alloc&) {
        engine_.Finish(id, FinishReason::kError, absl::ResourceExhaustedError("no memory"));
      }
      const Exemption none(false);
      RunInTheEnd([&] { engine_.Finish(id, FinishReason::kLength); });
    }
  }

  // One call over a connection of its own; returns grpc-status, or "" where the call was cut off.
  std::string Call(const std::string& method, const std::string& message) {
    SocketSession session(server_->port());
    H2Client client;
    HttpFields fields = RequestFields("POST", "/lowkey.v1." + method);
    fields.push_back({"content-type", "application/grpc"});
    const int32_t id = client.Send(fields, RpcPrefix(message.size()) + message);
    const absl::Time end = absl::Now() + kPatience;
    while (!client.answers[id].is_closed && !session.is_over()) {
      EXPECT_LT(absl::Now(), end) << "the call hangs";
      if (absl::Now() >= end) break;
      client.Talk(session, absl::Now());
      ServeRequests();
    }
    for (const HttpFields* block : {&client.answers[id].trailers, &client.answers[id].head}) {
      for (const HttpField& field : *block) {
        if (field.name == "grpc-status") return field.value;
      }
    }
    return "";
  }

  void FailEverywhere(const std::string& method, const std::string& message) {
    const Exemption exempt;
    for (int i = 0; i < 3; ++i) ASSERT_EQ(Call(method, message), "0");
    FailAllocation(0);
    ASSERT_EQ(Call(method, message), "0");
    const int64_t n_allocations = NumAllocations();
    ASSERT_GT(n_allocations, 50);
    for (int64_t n = 1; n <= n_allocations; ++n) {
      SCOPED_TRACE(n);
      FailAllocation(n);
      const std::string status = Call(method, message);
      FailAllocation(0);
      EXPECT_TRUE(status == "0" || status == "8" || status.empty()) << status;
      ASSERT_EQ(Call(method, message), "0") << "the next call works";
      if (HasFailure()) return;
    }
    ASSERT_TRUE(engine_.WaitForRunning(0));
    EXPECT_TRUE(server_->Shutdown(absl::Now() + kPatience)) << "a call is left";
  }

  const SampledToken token_ = [] {
    SampledToken token;
    token.token = BytePieces("a")[0];
    return token;
  }();
  FakeEngine engine_;
  Metrics metrics_{"tales"};
  TextService service_{engine_, TestTokenizer(), {"tales", {}, {}, &metrics_}};
  std::unique_ptr<Server> server_;
};

TEST_F(ServerMemoryTest, EndsACallThatAWorkerAnswers) {
  v1::TokenizeRequest request;
  request.set_text("Once upon a time");
  FailEverywhere("Generation/Tokenize", request.SerializeAsString());
}

TEST_F(ServerMemoryTest, EndsAStreamOfTheEngine) {
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  FailEverywhere("Generation/GenerateStream", request.SerializeAsString());
}

TEST_F(ServerMemoryTest, EndsACallThatGathersWhatTheEngineSays) {
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  FailEverywhere("Generation/Generate", request.SerializeAsString());
}

TEST_F(ServerMemoryTest, EndsACallOfSeveralRequests) {
  v1::ScoreRequest request;
  request.set_text("Once upon");
  for (const char* text : {" a time", " a day", " us"}) request.add_continuation_texts(text);
  FailEverywhere("Generation/Score", request.SerializeAsString());
}

}  // namespace
}  // namespace lowkey
