#include "server/front/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "client/client.h"
#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/metrics/metrics.h"
#include "server/request/limits.h"
#include "server/text/text_service.h"
#include "tests/server/front/server_fixture.h"

namespace lowkey {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

using ServerTest = ServerFixture;

TEST_F(ServerTest, ConversationsAreTokenizedAsTheTemplateWritesThem) {
  TextService service(engine_, TestTokenizer(),
                      {"tales", {}, ChatTemplates("{{ bos_token }}{{ messages[0].content }}")});
  const auto server = Server::Start(service, {.port = 0});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::Generation::NewStub(
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
  v1::TokenizeRequest request;
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("Once");
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(stub->Tokenize(&context, request, &response).ok());
  EXPECT_EQ(response.rendered_text(), "<s>Once");
  EXPECT_EQ(response.token_ids(0), 1);
  EXPECT_EQ(response.pieces_size(), response.token_ids_size());
  request.set_text("beside");
  grpc::ClientContext second;
  EXPECT_THAT(stub->Tokenize(&second, request, &response).error_message(),
              HasSubstr("text: set beside chat"));
}

TEST_F(ServerTest, ModelSaysWhyConversationsAreRefused) {
  grpc::ClientContext context;
  v1::Model model;
  ASSERT_TRUE(v1::Models::NewStub(channel_)->GetModel(&context, {}, &model).ok());
  EXPECT_THAT(model.chat_refusal(), HasSubstr("no chat template"));
}

TEST_F(ServerTest, StreamEndsWithExactlyOneFinalEvent) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  for (int32_t token : BytePieces("hello")) engine_.Emit(id, token);
  engine_.Finish(id, FinishReason::kLength);
  v1::GenerateEvent event;
  std::string text;
  int n_tokens = 0, n_final = 0;
  while (reader->Read(&event)) {
    EXPECT_EQ(n_final, 0) << "an event after the final one";
    text += event.delta().text();
    n_tokens += event.delta().tokens_size();
    n_final += event.has_final();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "hello");
  EXPECT_EQ(n_tokens, 5);
  EXPECT_EQ(n_final, 1);
}

TEST_F(ServerTest, ErrorAfterAdmissionStillHasItsFinalEvent) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  engine_.Finish(WaitForOne(), FinishReason::kError, absl::InternalError("logits: NaN"));
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(event.final().choices(0).reason(), v1::FINISH_REASON_ERROR);
  EXPECT_FALSE(reader->Read(&event));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message(), "logits: NaN");
}

TEST_F(ServerTest, UnaryGathersAllChoices) {
  v1::GenerateRequest request = Request("Once");
  request.set_n(2);
  v1::GenerateResponse response;
  grpc::ClientContext context;
  auto status =
      std::async(std::launch::async, [&] { return stub_->Generate(&context, request, &response); });
  const RequestId id = WaitForOne();
  for (int32_t token : BytePieces("bb")) engine_.Emit(id, token, 1);
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_TRUE(status.get().ok());
  ASSERT_EQ(response.choices_size(), 2);
  EXPECT_EQ(response.choices(0).text(), "");
  EXPECT_EQ(response.choices(1).choice(), 1);
  EXPECT_EQ(response.choices(1).text(), "bb");
  EXPECT_EQ(response.final().choices_size(), 2);
}

TEST_F(ServerTest, CancelledCallIsCancelledInTheEngine) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  WaitForOne();
  context.TryCancel();
  EXPECT_TRUE(engine_.WaitForRunning(0));
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(engine_.Stats().n_cancelled_requests, 1);
}

TEST_F(ServerTest, ClientDeadlineEndsTheRequestInTheEngine) {
  grpc::ClientContext context;
  const absl::Time deadline = absl::Now() + absl::Milliseconds(300);
  context.set_deadline(absl::ToChronoTime(deadline));
  v1::GenerateResponse response;
  auto status = std::async(std::launch::async,
                           [&] { return stub_->Generate(&context, Request("Once"), &response); });
  const RequestId id = WaitForOne();
  ASSERT_NE(id, 0u);
  EXPECT_LT(engine_.request(id).deadline, deadline + absl::Seconds(5));
  EXPECT_EQ(status.get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(engine_.WaitForRunning(0));
}

TEST_F(ServerTest, WithoutADeadlineTheEngineGetsNone) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  EXPECT_EQ(engine_.request(WaitForOne()).deadline, absl::InfiniteFuture());
  context.TryCancel();
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  reader->Finish();
}

TEST_F(ServerTest, DisconnectedClientFreesTheRequest) {
  {
    const auto channel =
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    const auto stub = v1::Generation::NewStub(channel);
    grpc::ClientContext context;
    auto reader = stub->GenerateStream(&context, Request("Once"));
    WaitForOne();
  }
  EXPECT_TRUE(engine_.WaitForRunning(0));
}

TEST_F(ServerTest, CallsAreCountedOnceTheyAreOverAndTheNetworkIsShown) {
  grpc::ClientContext context, bad;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  const auto awaits = [this](const std::string& line) {
    for (int i = 0; i < 2000 && metrics_.Text().find(line) == std::string::npos; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_THAT(metrics_.Text(), HasSubstr(line));
  };
  awaits("lowkey:streams{model_name=\"tales\"} 1\n");
  awaits("lowkey:connections{model_name=\"tales\",protocol=\"http2\"} 1\n");
  engine_.Finish(id, FinishReason::kLength);
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  awaits("http_requests_total{model_name=\"tales\",api=\"grpc\",code=\"OK\"} 1\n");
  EXPECT_FALSE(stub_->GenerateStream(&bad, Request(""))->Finish().ok());
  awaits("http_requests_total{model_name=\"tales\",api=\"grpc\",code=\"INVALID_ARGUMENT\"} 1\n");
  awaits("lowkey:streams{model_name=\"tales\"} 0\n");
  server_.reset();
  EXPECT_THAT(metrics_.Text(), ::testing::Not(HasSubstr("lowkey:streams"))) << "it is gone";
}

TEST_F(ServerTest, RefusalsHaveTheirCodesInStreamAndUnary) {
  const auto code = [this](const v1::GenerateRequest& request) {
    grpc::ClientContext unary, streaming;
    v1::GenerateResponse response;
    const grpc::Status first = stub_->Generate(&unary, request, &response);
    auto reader = stub_->GenerateStream(&streaming, request);
    v1::GenerateEvent event;
    EXPECT_FALSE(reader->Read(&event));
    EXPECT_EQ(reader->Finish().error_code(), first.error_code());
    return first.error_code();
  };
  EXPECT_EQ(code(v1::GenerateRequest()), grpc::StatusCode::INVALID_ARGUMENT);
  v1::GenerateRequest request = Request("a");
  request.set_model("other");
  EXPECT_EQ(code(request), grpc::StatusCode::NOT_FOUND);
  request = Request("a");
  request.set_priority(101);
  EXPECT_EQ(code(request), grpc::StatusCode::INVALID_ARGUMENT);
  engine_.RefuseWith(absl::OutOfRangeError("too long"));
  EXPECT_EQ(code(Request("a")), grpc::StatusCode::OUT_OF_RANGE);
}

TEST_F(ServerTest, RefusalOfALongValueStillReachesTheClient) {
  v1::GenerateRequest request = Request("a");
  for (int i = 0; i < 50'000; ++i) request.mutable_attention()->mutable_rank()->append("\u00e9");
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = stub_->Generate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_LE(status.error_message().size(), 1027u);
  EXPECT_THAT(status.error_message(), EndsWith("\u00e9..."));
}

TEST_F(ServerTest, MessageOverItsLimitIsRefused) {
  grpc::ClientContext context;
  v1::TokenizeRequest request;
  request.set_text(std::string(kMaxMessageBytes + 1, 'a'));
  v1::TokenizeResponse response;
  EXPECT_EQ(stub_->Tokenize(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(ServerTest, HealthFollowsServingAndShutdown) {
  Client client(server_->address());
  const absl::Time soon = absl::Now() + absl::Seconds(30);
  EXPECT_TRUE(client.CheckHealth("", soon).ok());
  EXPECT_TRUE(client.CheckHealth("lowkey.v1.Generation", soon).ok());
  EXPECT_EQ(client.CheckHealth("nobody", soon).code(), absl::StatusCode::kNotFound);

  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  auto drained = std::async(std::launch::async,
                            [&] { return server_->Shutdown(absl::Now() + absl::Seconds(60)); });
  while (client.CheckHealth("", soon).ok()) absl::SleepFor(absl::Milliseconds(5));
  // The port is closed before new work is refused.
  EXPECT_THAT(std::string(client.CheckHealth("", soon).message()), HasSubstr("no server answers"));
  grpc::ClientContext late;
  v1::GenerateResponse response;
  EXPECT_EQ(stub_->Generate(&late, Request("a"), &response).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_TRUE(drained.get());
  v1::GenerateEvent event;
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_final());
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(ServerTest, WhatOutlivesTheGracePeriodIsUnavailable) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  WaitForOne();
  EXPECT_FALSE(server_->Shutdown(absl::Now() + absl::Milliseconds(50)));
  EXPECT_TRUE(engine_.ids().empty());
  v1::GenerateEvent event;
  EXPECT_TRUE(reader->Read(&event));
  EXPECT_TRUE(event.has_final());
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerTest, ShutdownWaitsForAReaderThatHasNotReadTheEnd) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  // More than gRPC's own buffers hold.
  constexpr int kTokens = 2000;
  for (int i = 0; i < kTokens; ++i) engine_.Emit(id, LargeToken());
  engine_.Finish(id, FinishReason::kLength);
  std::atomic<int> n_polls{0};
  auto drained = std::async(std::launch::async, [&] {
    return server_->Shutdown(absl::Now() + absl::Seconds(60), [&n_polls] {
      ++n_polls;
      return false;
    });
  });
  // The engine has long been idle by the third time.
  while (n_polls < 3 &&
         drained.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
  }
  EXPECT_GE(n_polls, 3);
  v1::GenerateEvent event;
  int n_tokens = 0, n_final = 0;
  while (reader->Read(&event)) {
    n_tokens += event.delta().tokens_size();
    n_final += event.has_final();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(n_tokens, kTokens);
  EXPECT_EQ(n_final, 1);
  EXPECT_TRUE(drained.get());
}

TEST_F(ServerTest, DrainCalledTwiceIsDrainedOnce) {
  const auto admin = v1::Admin::NewStub(channel_);
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  const RequestId id = WaitForOne();
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext drain_context;
    v1::DrainResponse response;
    ASSERT_TRUE(admin->Drain(&drain_context, {}, &response).ok());
    EXPECT_EQ(response.unfinished_requests(), 1);
  }
  EXPECT_TRUE(server_->is_draining());
  engine_.Finish(id, FinishReason::kLength);
  v1::GenerateEvent event;
  EXPECT_TRUE(reader->Read(&event));
  EXPECT_FALSE(reader->Read(&event));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(server_->Shutdown(absl::Now() + absl::Seconds(60)));
}

TEST_F(ServerTest, ShutdownCanBeCutShort) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, Request("Once"));
  WaitForOne();
  EXPECT_FALSE(server_->Shutdown(absl::Now() + absl::Hours(1), [] { return true; }));
  EXPECT_TRUE(engine_.ids().empty());
}

TEST_F(ServerTest, SecondServerOnThePortIsRefused) {
  const auto second = Server::Start(service_, {.port = server_->port()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ServerTest, AddressOthersReachNeedsInsecure) {
  const auto refused = Server::Start(service_, {.host = "0.0.0.0", .port = 0});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--insecure"));
  EXPECT_TRUE(
      Server::Start(service_, {.host = "0.0.0.0", .port = 0, .is_insecure_allowed = true}).ok());
}

TEST_F(ServerTest, ClientSaysWhereThereIsNoServer) {
  Client client("127.0.0.1:1");
  GenerationRequest request;
  request.input = std::string("a");
  const auto summary = client.GenerateStream(request, [](const v1::ChoiceDelta&) {});
  EXPECT_EQ(summary.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(summary.status().message()),
              HasSubstr("no server answers at 127.0.0.1:1"));
}

TEST_F(ServerTest, ClientCancelEndsItsCalls) {
  Client client(server_->address());
  GenerationRequest request;
  request.input = std::string("a");
  auto summary = std::async(std::launch::async, [&] {
    return client.GenerateStream(request, [](const v1::ChoiceDelta&) {});
  });
  WaitForOne();
  client.Cancel();
  EXPECT_EQ(summary.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(engine_.WaitForRunning(0));
}

TEST_F(ServerTest, ScoreIsCancelledWithItsCall) {
  v1::ScoreRequest request;
  request.set_text("Once");
  request.add_continuation_texts(" a");
  request.add_continuation_texts(" b");
  grpc::ClientContext context;
  v1::ScoreResponse response;
  auto status =
      std::async(std::launch::async, [&] { return stub_->Score(&context, request, &response); });
  EXPECT_TRUE(engine_.WaitForRunning(2));
  context.TryCancel();
  EXPECT_TRUE(engine_.WaitForRunning(0));
  EXPECT_EQ(status.get().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace lowkey
