// Many streams at once, and streams that end early, over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/integration/running_server.h"

namespace lowkey {
namespace {

struct Streamed {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int n_final = 0;
  grpc::Status status;
  bool operator==(const Streamed& other) const {
    return text == other.text && tokens == other.tokens && logprobs == other.logprobs;
  }
};

Streamed Stream(const RunningServer& server, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  auto reader = server.generation->GenerateStream(&context, request);
  Streamed streamed;
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    streamed.text += event.delta().text();
    for (const v1::Token& token : event.delta().tokens()) {
      streamed.tokens.push_back(token.token_id());
      streamed.logprobs.push_back(token.logprob());
    }
    streamed.n_final += event.has_final();
  }
  streamed.status = reader->Finish();
  return streamed;
}

// Prompts of different lengths, mechanisms and ways of sampling.
v1::GenerateRequest MixedRequest(int i) {
  v1::GenerateRequest request;
  for (int t = 0; t < 5 + 37 * (i % 8); ++t) {
    request.mutable_token_ids()->add_ids(3 + (i * 131 + t * 17) % 4000);
  }
  request.set_max_new_tokens(24 + i);
  request.set_ignore_eos(true);
  request.set_logprobs(0);
  request.mutable_sampling()->set_temperature(i % 3 == 0 ? 0.0f : 0.9f);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(100 + i));
  if (i % 4 == 2) {
    request.mutable_attention()->set_mechanism("taylorshift");
    request.mutable_attention()->set_form(i % 8 == 2 ? "recurrent" : "auto");
    request.mutable_attention()->set_variant(i % 16 < 8 ? "normalised" : "plain");
  }
  constexpr const char* kBundled[] = {"efficient", "optimised", "super", "lasso"};
  if (i % 8 == 4) request.mutable_attention()->set_mechanism(kBundled[i / 8 % 4]);
  if (i % 2 == 0) return request;
  request.mutable_attention()->set_mechanism("atp");
  request.mutable_attention()->set_block_tokens(64);
  request.mutable_attention()->set_window_blocks(i % 4 == 1 ? 0 : 1);
  request.mutable_attention()->set_rank(i % 4 == 1 ? "8" : "1/2");
  request.mutable_attention()->set_basis(i % 8 < 4 ? "layer" : "kv");
  request.mutable_attention()->set_prefill(i % 8 == 1 ? "compressed" : "exact");
  return request;
}

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
