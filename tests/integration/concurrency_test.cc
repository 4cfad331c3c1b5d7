// Many streams at once, and streams that end early, over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <map>

#include "absl/time/clock.h"
#include "tests/integration/running_server.h"
#include "tests/integration/streams.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class ConcurrencyTest : public ::testing::Test {
 protected:
  static v1::GenerateRequest LongRequest() {
    v1::GenerateRequest request;
    request.set_text("Once upon a time");
    request.set_max_new_tokens(900);
    request.set_ignore_eos(true);
    return request;
  }

  void ExpectAllFreed() {
    const v1::StatsResponse stats = server_.WaitUntilIdle();
    EXPECT_EQ(stats.running_requests(), 0);
    EXPECT_EQ(stats.waiting_requests(), 0);
    EXPECT_EQ(stats.cache_bytes_used(), 0);
  }

  RunningServer server_;
};

TEST_F(ConcurrencyTest, SixteenMixedStreamsEqualTheSameRequestsAlone) {
  constexpr int kStreams = 16;
  std::vector<Streamed> alone;
  for (int i = 0; i < kStreams; ++i) alone.push_back(Stream(server_, MixedRequest(i)));
  std::vector<std::future<Streamed>> together;
  for (int i = 0; i < kStreams; ++i) {
    together.push_back(
        std::async(std::launch::async, [this, i] { return Stream(server_, MixedRequest(i)); }));
  }
  for (int i = 0; i < kStreams; ++i) {
    const Streamed streamed = together[static_cast<size_t>(i)].get();
    EXPECT_TRUE(streamed.status.ok()) << i << ": " << streamed.status.error_message();
    EXPECT_EQ(streamed.n_final, 1);
    EXPECT_EQ(streamed.tokens.size(), static_cast<size_t>(24 + i));
    EXPECT_TRUE(streamed == alone[static_cast<size_t>(i)]) << "stream " << i << " differs";
  }
  ExpectAllFreed();
}

TEST_F(ConcurrencyTest, CancelledStreamFreesItsCache) {
  grpc::ClientContext context;
  auto reader = server_.generation->GenerateStream(&context, LongRequest());
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_GT(server_.Stats().cache_bytes_used(), 0);
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectAllFreed();
  EXPECT_EQ(server_.Stats().cancelled_requests(), 1);
}

TEST_F(ConcurrencyTest, DisconnectedClientFreesItsCache) {
  {
    const auto stub = v1::Generation::NewStub(server_.Connect());
    grpc::ClientContext context;
    auto reader = stub->GenerateStream(&context, LongRequest());
    v1::GenerateEvent event;
    ASSERT_TRUE(reader->Read(&event));
  }
  ExpectAllFreed();
}

// A connection whose windows do not grow: a client that does not read soon takes no more.
std::shared_ptr<grpc::Channel> ConnectWithSmallWindows(const RunningServer& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16384);
  return server.Connect(arguments);
}

// Far more than gRPC's own buffers hold.
v1::GenerateRequest LargeRequest() {
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.set_max_new_tokens(300);
  request.set_ignore_eos(true);
  request.set_logprobs(20);
  request.set_n(8);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(4);
  return request;
}

TEST_F(ConcurrencyTest, StreamThatIsNotReadPausesAndIsWholeOnceItIs) {
  const auto stub = v1::Generation::NewStub(ConnectWithSmallWindows(server_));
  grpc::ClientContext context;
  auto reader = stub->GenerateStream(&context, LargeRequest());
  // It has come to rest when nothing is generated beside another stream's tokens.
  int64_t n_before = -1, n_other = 0;
  do {
    n_before = server_.Stats().generated_tokens();
    n_other = static_cast<int64_t>(Stream(server_, MixedRequest(3)).tokens.size());
  } while (server_.Stats().generated_tokens() != n_before + n_other);
  EXPECT_EQ(server_.Stats().running_requests(), 1);
  EXPECT_GT(server_.Stats().cache_bytes_used(), 0);
  EXPECT_THAT(server_.metrics.Text(), HasSubstr("num_streams_paused{model_name=\"tiny\"} 1"));
  std::map<int32_t, std::vector<int32_t>> tokens;
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    for (const v1::Token& token : event.delta().tokens()) {
      tokens[event.delta().choice()].push_back(token.token_id());
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  ExpectAllFreed();
  grpc::ClientContext unary;
  v1::GenerateResponse response;
  ASSERT_TRUE(server_.generation->Generate(&unary, LargeRequest(), &response).ok());
  for (const v1::ChoiceDelta& choice : response.choices()) {
    std::vector<int32_t> alone;
    for (const v1::Token& token : choice.tokens()) alone.push_back(token.token_id());
    EXPECT_EQ(tokens[choice.choice()], alone);
    EXPECT_EQ(alone.size(), 300u);
  }
}

TEST(StalledReaderTest, FreesItsCacheAfterTheTimeoutAndIsToldSo) {
  RunningServer server({.port = 0, .stall_timeout = absl::Milliseconds(100)});
  const auto stub = v1::Generation::NewStub(ConnectWithSmallWindows(server));
  grpc::ClientContext context;
  auto reader = stub->GenerateStream(&context, LargeRequest());
  while (server.Stats().cancelled_requests() == 0) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(server.Stats().cache_bytes_used(), 0);
  EXPECT_EQ(server.Stats().running_requests(), 0);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(event.has_final());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ConcurrencyTest, PassedDeadlineFreesItsCache) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(40)));
  v1::GenerateRequest request = LongRequest();
  request.set_n(8);
  v1::GenerateResponse response;
  EXPECT_EQ(server_.generation->Generate(&context, request, &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  ExpectAllFreed();
}

TEST_F(ConcurrencyTest, CancelAmongOthersLeavesThemAsTheyWere) {
  const Streamed alone = Stream(server_, MixedRequest(3));
  grpc::ClientContext context;
  auto reader = server_.generation->GenerateStream(&context, LongRequest());
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  auto other = std::async(std::launch::async, [this] { return Stream(server_, MixedRequest(3)); });
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
  EXPECT_TRUE(other.get() == alone);
  ExpectAllFreed();
}

TEST_F(ConcurrencyTest, DuplicateIdIsRefusedOnlyWhileItRuns) {
  v1::GenerateRequest request = LongRequest();
  request.set_request_id("mine");
  grpc::ClientContext context, second;
  auto reader = server_.generation->GenerateStream(&context, request);
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  v1::GenerateResponse response;
  EXPECT_EQ(server_.generation->Generate(&second, request, &response).error_code(),
            grpc::StatusCode::ALREADY_EXISTS);
  context.TryCancel();
  while (reader->Read(&event)) {
  }
  reader->Finish();
  ExpectAllFreed();
  request.set_max_new_tokens(2);
  EXPECT_TRUE(Stream(server_, request).status.ok());
  EXPECT_TRUE(Stream(server_, request).status.ok());
}

TEST_F(ConcurrencyTest, ShutdownLetsRunningStreamsFinish) {
  v1::GenerateRequest request = LongRequest();
  request.set_max_new_tokens(60);
  grpc::ClientContext context;
  auto reader = server_.generation->GenerateStream(&context, request);
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  auto drained = std::async(std::launch::async, [this] {
    return server_.server().Shutdown(absl::Now() + absl::Seconds(120));
  });
  int n_tokens = event.delta().tokens_size();
  bool has_final = false;
  while (reader->Read(&event)) {
    n_tokens += event.delta().tokens_size();
    has_final |= event.has_final();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(n_tokens, 60);
  EXPECT_TRUE(has_final);
  EXPECT_TRUE(drained.get());
}

}  // namespace
}  // namespace lowkey
