#ifndef LOWKEY_TESTS_SERVER_FRONT_SERVER_FIXTURE_H_
#define LOWKEY_TESTS_SERVER_FRONT_SERVER_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "lowkey/v1/generation.grpc.pb.h"
#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {

// A real server on a free port over an engine that the test plays.
class ServerFixture : public ::testing::Test {
 protected:
  void SetUp() override { Serve({.port = 0}); }

  void Serve(const ServerOptions& options) {
    auto server = Server::Start(service_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    // Windows that do not grow, so that a client that does not read soon takes no more.
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16384);
    channel_ = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                         arguments);
    stub_ = v1::Generation::NewStub(channel_);
  }

  static v1::GenerateRequest Request(const std::string& text) {
    v1::GenerateRequest request;
    request.set_text(text);
    return request;
  }

  RequestId WaitForOne() {
    EXPECT_TRUE(engine_.WaitForRunning(1));
    return engine_.ids().empty() ? 0 : engine_.ids().front();
  }

  // A token of some 300 bytes, so that gRPC's own buffers hold few.
  static SampledToken LargeToken() {
    SampledToken token;
    token.token = BytePieces("a")[0];
    token.logprob = -1.0f;
    token.top_logprobs.assign(20, {token.token, -1.0f});
    return token;
  }

  // Emits tokens until the sink asks for a pause; how many.
  int EmitUntilPaused(RequestId id) {
    int n = 1;
    for (; n < 200000; ++n) {
      const SinkAnswer answer = engine_.Emit(id, LargeToken());
      if (answer == SinkAnswer::kPause) break;
      EXPECT_EQ(answer, SinkAnswer::kContinue);
    }
    return n;
  }

  FakeEngine engine_;
  Metrics metrics_{"tales"};
  TextService service_{engine_, TestTokenizer(), {"tales", {}, {}, &metrics_}};
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_FRONT_SERVER_FIXTURE_H_
