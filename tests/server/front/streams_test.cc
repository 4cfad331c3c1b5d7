// Streams whose readers are slow, and the events that they get.
#include <gmock/gmock.h>

#include "tests/server/front/server_fixture.h"
#include "tests/server/request_log_text.h"

namespace lowkey {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using StreamsTest = ServerFixture;

TEST_F(StreamsTest, ReaderThatDoesNotReadPausesItsRequestUntilItDoes) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  const int n_emitted = EmitUntilPaused(id);
  EXPECT_GE(n_emitted, 256);
  // Tokens that are computed already when the request pauses are taken all the same.
  engine_.Emit(id, LargeToken());
  v1::GenerateEvent event;
  int n_read = 0;
  while (n_read < n_emitted + 1 && reader->Read(&event)) n_read += event.delta().tokens_size();
  EXPECT_EQ(n_read, n_emitted + 1);
  EXPECT_TRUE(engine_.WaitForResumes(1));
  EXPECT_THAT(metrics_.Text(), HasSubstr("lowkey:num_streams_paused{model_name=\"tales\"} 0"));
  EXPECT_EQ(engine_.Emit(id, LargeToken()), SinkAnswer::kContinue);
  engine_.Finish(id, FinishReason::kLength);
  while (reader->Read(&event)) n_read += event.delta().tokens_size();
  EXPECT_EQ(n_read, n_emitted + 2);
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamsTest, StreamSendsItsFirstTokenAtOnceAndThenSoManyAtATime) {
  Serve({.port = 0, .stream_interval = 4});
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  const auto emit = [&](int n) {
    for (int i = 0; i < n; ++i) engine_.Emit(id, LargeToken());
  };
  v1::GenerateEvent event;
  for (const int n : {1, 4, 4}) {
    emit(n);
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_EQ(event.delta().tokens_size(), n);
  }
  emit(2);
  engine_.Finish(id, FinishReason::kLength);
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.delta().tokens_size(), 2);
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_final());
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamsTest, ReaderThatNeverReadsIsEndedAfterTheStallTimeout) {
  Serve({.port = 0, .stall_timeout = absl::Milliseconds(20)});
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  // A pause of the first ones may be over before the time is: gRPC's own buffers take some.
  for (int i = 0; i < 20000 && !engine_.WaitForRunning(0, absl::Milliseconds(1)); ++i) {
    engine_.Emit(id, LargeToken());
  }
  EXPECT_TRUE(engine_.ids().empty());
  EXPECT_EQ(engine_.Stats().n_cancelled_requests, 1);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  ASSERT_EQ(event.final().choices_size(), 1);
  EXPECT_EQ(event.final().choices(0).reason(), v1::FINISH_REASON_CANCELLED);
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("256 tokens have waited for it for 20ms"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("lowkey:num_streams_paused{model_name=\"tales\"} 0"));
}

TEST_F(StreamsTest, PausedStreamsEndWithTheirCallAndWithTheServer) {
  grpc::ClientContext context, second;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  EmitUntilPaused(WaitForOne());
  context.TryCancel();
  EXPECT_TRUE(engine_.WaitForRunning(0));
  reader = stub_->GenerateStream(&second, Request("Once"));
  EmitUntilPaused(WaitForOne());
  EXPECT_FALSE(server_->Shutdown(absl::Now() + absl::Milliseconds(50)));
  EXPECT_TRUE(engine_.ids().empty());
}

TEST_F(StreamsTest, TheLogSaysHowFarACancelledStreamCameAndWhoEndedIt) {
  RequestLogText log;
  Serve({.port = 0, .log = log.log()});
  {
    grpc::ClientContext context;
    v1::GenerateRequest request = Request("Once");
    request.set_request_id("left");
    auto reader = stub_->GenerateStream(&context, request);
    const RequestId id = WaitForOne();
    engine_.Emit(id, LargeToken());
    v1::GenerateEvent event;
    EXPECT_TRUE(reader->Read(&event));
    context.TryCancel();
    EXPECT_TRUE(engine_.WaitForRunning(0));
    EXPECT_FALSE(reader->Finish().ok());
    grpc::ClientContext large;
    v1::GenerateResponse response;
    EXPECT_EQ(stub_->Generate(&large, Request(std::string(5 << 20, 'a')), &response).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  server_.reset();
  const std::string text = log.Text();
  EXPECT_THAT(text, ContainsRegex("\"CANCELLED\".*the client ended the call.*"
                                  "\"request_id\":\"left\".*\"finish\":.\"cancelled\""));
  EXPECT_THAT(text, ContainsRegex("\"RESOURCE_EXHAUSTED\".*message: 52428.. bytes"));
}

}  // namespace
}  // namespace lowkey
