// Draining: nothing that was admitted is lost, whatever else comes. In this process, and with the
// real binary and real signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/time/clock.h"
#include "client/client.h"
#include "server/front/ops.h"
#include "tests/integration/child_process.h"
#include "tests/integration/running_server.h"
#include "tests/server/front/http_get.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

constexpr int kNumStreams = 48;

struct Streamed {
  int n_tokens = 0, n_final = 0;
  grpc::Status status;
};

Streamed Stream(v1::Generation::Stub& stub, int32_t max_new_tokens) {
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.set_max_new_tokens(max_new_tokens);
  request.set_ignore_eos(true);
  grpc::ClientContext context;
  auto reader = stub.GenerateStream(&context, request);
  Streamed streamed;
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    streamed.n_tokens += event.delta().tokens_size();
    streamed.n_final += event.has_final();
  }
  streamed.status = reader->Finish();
  return streamed;
}

std::vector<std::future<Streamed>> StartStreams(v1::Generation::Stub& stub,
                                                int32_t max_new_tokens) {
  std::vector<std::future<Streamed>> streams;
  for (int i = 0; i < kNumStreams; ++i) {
    streams.push_back(std::async(std::launch::async,
                                 [&stub, max_new_tokens] { return Stream(stub, max_new_tokens); }));
  }
  return streams;
}

// Returns once every stream has been admitted.
void AwaitAdmission(v1::Admin::Stub& admin) {
  v1::StatsResponse stats;
  do {
    grpc::ClientContext context;
    ASSERT_TRUE(admin.Stats(&context, {}, &stats).ok());
  } while (stats.running_requests() + stats.waiting_requests() + stats.finished_requests() <
           kNumStreams);
}

void ExpectAllWhole(std::vector<std::future<Streamed>>& streams, int32_t n_tokens) {
  int n_whole = 0;
  for (auto& stream : streams) {
    const Streamed streamed = stream.get();
    EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
    n_whole += streamed.status.ok() && streamed.n_tokens == n_tokens && streamed.n_final == 1;
  }
  EXPECT_EQ(n_whole, kNumStreams);
}

void ExpectAllUnavailable(std::vector<std::future<Streamed>>& streams) {
  for (auto& stream : streams) {
    const Streamed streamed = stream.get();
    EXPECT_EQ(streamed.status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(streamed.status.error_message(), HasSubstr("grace period"));
    EXPECT_EQ(streamed.n_final, 1);
  }
}

TEST(DrainTest, RpcRefusesNewWorkAndFinishesWhatWasAdmitted) {
  RunningServer server;
  auto streams = StartStreams(*server.generation, 150);
  AwaitAdmission(*server.admin);
  grpc::ClientContext drain_context, generate_context, score_context;
  v1::DrainResponse drain;
  ASSERT_TRUE(server.admin->Drain(&drain_context, {}, &drain).ok());
  EXPECT_TRUE(server.server().is_draining());
  EXPECT_EQ(server.metrics.state(), ServingState::kDraining);
  Client client(server.server().address());
  EXPECT_FALSE(client.CheckHealth("", absl::Now() + absl::Seconds(30)).ok());

  v1::GenerateRequest request;
  request.set_text("Once");
  v1::GenerateResponse response;
  const grpc::Status refused = server.generation->Generate(&generate_context, request, &response);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.error_message(), HasSubstr("draining"));
  EXPECT_EQ(Stream(*server.generation, 5).status.error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::ScoreRequest score;
  score.set_text("Once");
  score.add_continuation_texts(" upon");
  v1::ScoreResponse scores;
  EXPECT_EQ(server.generation->Score(&score_context, score, &scores).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(server.metrics.Text(), HasSubstr("code=\"UNAVAILABLE\"} 3\n"));

  EXPECT_TRUE(server.server().Shutdown(absl::Now() + absl::Seconds(120)));
  ExpectAllWhole(streams, 150);
}

TEST(DrainTest, ClientsOfSeveralServersLeaveTheOneThatDrains) {
  constexpr int kServed = 20;
  RunningServer leaving, staying;
  auto streams = StartStreams(*leaving.generation, 1000);
  AwaitAdmission(*leaving.admin);
  grpc::ChannelArguments arguments;
  arguments.SetLoadBalancingPolicyName("round_robin");
  v1::Generation::Stub stub(grpc::CreateCustomChannel(
      "ipv4:" + leaving.server().address() + "," + staying.server().address(),
      grpc::InsecureChannelCredentials(), arguments));
  EXPECT_TRUE(Stream(stub, 1).status.ok());
  auto drained = std::async(std::launch::async, [&] {
    return leaving.server().Shutdown(absl::Now() + absl::Seconds(120));
  });
  const auto is_drained = [&] {
    return drained.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  int n_in_a_row = 0;
  while (n_in_a_row < kServed && !is_drained()) {
    n_in_a_row = leaving.server().is_draining() && Stream(stub, 1).status.ok() ? n_in_a_row + 1 : 0;
  }
  EXPECT_FALSE(is_drained());
  EXPECT_EQ(n_in_a_row, kServed);
  ExpectAllWhole(streams, 1000);
  EXPECT_TRUE(drained.get());
}

TEST(DrainTest, WhatOutlivesTheGracePeriodIsUnavailableWithItsFinalEvent) {
  RunningServer server;
  auto streams = StartStreams(*server.generation, 1000);
  AwaitAdmission(*server.admin);
  EXPECT_FALSE(server.server().Shutdown(absl::Now()));
  ExpectAllUnavailable(streams);
}

TEST(DrainTest, MetricsCountWhatWasServed) {
  RunningServer server;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Stream(*server.generation, 20).status.ok());
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.set_max_new_tokens(400);
  request.set_ignore_eos(true);
  request.set_n(2);
  request.mutable_attention()->set_mechanism("atp");
  request.mutable_attention()->set_rank("8");
  request.mutable_attention()->set_block_tokens(64);
  grpc::ClientContext context, bad_context;
  v1::GenerateResponse response;
  ASSERT_TRUE(server.generation->Generate(&context, request, &response).ok());
  const v1::AttentionReport& atp = response.final().attention();
  request.set_n(9);
  EXPECT_FALSE(server.generation->Generate(&bad_context, request, &response).ok());

  auto http = OpsServer::Start(server.metrics, "127.0.0.1", 0);
  ASSERT_TRUE(http.ok()) << http.status();
  const HttpAnswer answer = HttpGet((*http)->port(), "/metrics");
  EXPECT_EQ(answer.code, 200);
  const std::string label = "{model_name=\"tiny\"", vllm = "{engine=\"0\",model_name=\"tiny\"";
  for (const std::string& line : {
           "vllm:num_requests_running" + vllm + "} 0\n",
           "vllm:num_requests_waiting" + vllm + "} 0\n",
           "vllm:kv_cache_usage_perc" + vllm + "} 0\n",
           "vllm:generation_tokens_total" + vllm + "} 860\n",
           "vllm:time_to_first_token_seconds_count" + vllm + "} 4\n",
           // 3 times 19, and 399 of each choice.
           "vllm:inter_token_latency_seconds_count" + vllm + "} 855\n",
           "vllm:e2e_request_latency_seconds_count" + vllm + "} 4\n",
           "vllm:request_success_total" + vllm + ",finished_reason=\"length\"} 5\n",
           "vllm:request_success_total" + vllm + ",finished_reason=\"stop\"} 0\n",
           "lowkey:requests_total" + label + ",mechanism=\"standard\"} 3\n",
           "lowkey:generated_tokens_total" + label + ",mechanism=\"atp\"} 800\n",
           "lowkey:refused_requests_total" + label + ",code=\"INVALID_ARGUMENT\"} 1\n",
           absl::StrCat("lowkey:principal_key_saved_bytes_total", label, "} ",
                        atp.standard_cache_bytes() - atp.cache_bytes(), "\n"),
       }) {
    EXPECT_THAT(answer.text, HasSubstr(line));
  }
  EXPECT_THAT(answer.text, HasSubstr("lowkey:cache_limit_bytes" + label));
  EXPECT_EQ(HttpGet((*http)->port(), "/ready").code, 200);
}

// The binary under kNumStreams streams, with a metrics port.
class SignalTest : public ::testing::Test {
 protected:
  SignalTest() : model_(ServedModelOptions()) {
    std::filesystem::copy_file(SourcePath("models/tales/tokenizer.model"),
                               model_.File("tokenizer.model"));
  }

  void Serve(const std::string& grace) {
    server_ = std::make_unique<ChildProcess>(std::vector<std::string>{
        LOWKEY_BINARY, "serve", "--port", "0", "--model", model_.path(), "--json", "--threads", "1",
        "--max-wait", "1h", "--cache-bytes", "64M", "--metrics", "127.0.0.1:0", "--grace", grace});
    ASSERT_TRUE(server_->WaitForOutput("\n"));
    const auto ready = nlohmann::json::parse(server_->output());
    metrics_port_ = ready["metrics_port"].get<int>();
    const auto channel = grpc::CreateChannel(ready["address"].get<std::string>(),
                                             grpc::InsecureChannelCredentials());
    generation_ = v1::Generation::NewStub(channel);
    admin_ = v1::Admin::NewStub(channel);
  }

  void StartLoad(int32_t max_new_tokens) {
    EXPECT_EQ(HttpGet(metrics_port_, "/ready").code, 200);
    streams_ = StartStreams(*generation_, max_new_tokens);
    AwaitAdmission(*admin_);
  }

  TinyModel model_;
  std::unique_ptr<ChildProcess> server_;
  int metrics_port_ = 0;
  std::unique_ptr<v1::Generation::Stub> generation_;
  std::unique_ptr<v1::Admin::Stub> admin_;
  std::vector<std::future<Streamed>> streams_;
};

TEST_F(SignalTest, SigtermUnderLoadLosesNothing) {
  Serve("300");
  StartLoad(200);
  server_->Signal(SIGTERM);
  ExpectAllWhole(streams_, 200);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(SignalTest, DrainRpcEndsTheProcessAsSigtermDoes) {
  Serve("300");
  StartLoad(200);
  grpc::ClientContext context;
  v1::DrainResponse drain;
  EXPECT_TRUE(admin_->Drain(&context, {}, &drain).ok());
  ExpectAllWhole(streams_, 200);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(SignalTest, SecondSigtermEndsWhatRuns) {
  Serve("10m");
  StartLoad(1000);
  server_->Signal(SIGTERM);
  while (HttpGet(metrics_port_, "/ready").code != 503) {
  }
  EXPECT_EQ(HttpGet(metrics_port_, "/health").code, 200);
  server_->Signal(SIGTERM);
  ExpectAllUnavailable(streams_);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(SignalTest, ShortGracePeriodStillExitsWithZero) {
  Serve("1ms");
  StartLoad(1000);
  server_->Signal(SIGTERM);
  ExpectAllUnavailable(streams_);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST(MetricsFlagTest, AddressMustBeLoopbackAndWhole) {
  for (const auto& [address, says] :
       {std::pair("0.0.0.0:0", "--insecure"), std::pair("9090", "127.0.0.1:9090"),
        std::pair("127.0.0.1:x", "127.0.0.1:9090")}) {
    ChildProcess child({LOWKEY_BINARY, "serve", "--port", "0", "--metrics", address});
    EXPECT_EQ(child.Wait(), 2) << address;
    EXPECT_THAT(child.errors(), HasSubstr(says));
  }
}

}  // namespace
}  // namespace lowkey
