// The load generator against a real server over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/load/load_client.h"
#include "client/load/run_point.h"
#include "client/load/statistics.h"
#include "tests/integration/child_process.h"
#include "tests/integration/running_server.h"
#include "tests/integration/terminal_process.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

RunningServer& Server() {
  static auto* server = new RunningServer();
  return *server;
}

WorkloadOptions Options(const ServedModel& model) {
  WorkloadOptions options;
  options.prompt_lengths = UniformLengths{4, 40};
  options.output_lengths = UniformLengths{2, 9};
  options.mix = {{"standard"}, {"atp --block 64 --window 0"}};
  options.mix[1].attention.mechanism = "atp";
  options.mix[1].attention.options = {{"block_tokens", 64}, {"window_blocks", 0}};
  options.vocab_size = model.vocab_size;
  options.context_tokens = model.context_tokens;
  options.special_tokens = model.special_tokens;
  return options;
}

PointResult RunLoad(LoadClient& client, const WorkloadOptions& workload,
                    const PointOptions& point) {
  const absl::Notification cancelled;
  PointResult result;
  Evaluate(RunPoint(Workload(workload), point, client, cancelled, [](const PointProgress&) {}),
           workload.mix, {}, result);
  return result;
}

TEST(LoadClientTest, LearnsTheModelFromTheServer) {
  LoadClient client(Server().server().address());
  const auto model = client.GetModel();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->vocab_size, 4096);
  EXPECT_EQ(model->context_tokens, 1024);
  EXPECT_THAT(model->special_tokens, ::testing::IsSupersetOf({1, 2}));
  EXPECT_THAT(model->mechanisms, AllOf(Contains("standard"), Contains("atp")));
  const auto tokens = client.Tokenize("Once upon a time");
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_GT(tokens->size(), 2u);
}

// This gateway stands before several servers and has no Stats.
class Gateway final : public v1::Models::Service {
 public:
  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                        v1::Model* model) override {
    model->set_name("several");
    model->mutable_architecture()->set_vocab_size(100);
    model->mutable_limits()->set_context_tokens(200);
    return grpc::Status::OK;
  }
};

TEST(LoadClientTest, AGatewayNeedNotHaveStats) {
  Gateway gateway;
  int port = 0;
  const std::unique_ptr<grpc::Server> server =
      grpc::ServerBuilder()
          .AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port)
          .RegisterService(&gateway)
          .BuildAndStart();
  LoadClient client(absl::StrCat("127.0.0.1:", port));
  const auto model = client.GetModel();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->name, "several");
  EXPECT_EQ(model->n_threads, 0);
  EXPECT_FALSE(client.Poll().has_value());
}

TEST(LoadClientTest, SaysWhereNoServerAnswers) {
  LoadClient client("127.0.0.1:1");
  const absl::Status status = client.GetModel().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no server answers at 127.0.0.1:1"));
  EXPECT_FALSE(client.Poll().has_value());
}

TEST(LoadClientTest, EveryTokenOfALoadIsSeenAndTimed) {
  LoadClient client(Server().server().address());
  const WorkloadOptions workload = Options(*client.GetModel());
  int64_t n_tokens = 0;
  for (int i = 0; i < 30; ++i) n_tokens += *Workload(workload).At(0, i).request.max_new_tokens;
  const PointResult result = RunLoad(client, workload, {.concurrency = 6, .n_requests = 30});
  EXPECT_EQ(result.all.n_ok, 30);
  EXPECT_EQ(result.all.n_output_tokens, n_tokens);
  EXPECT_EQ(client.n_tokens(), n_tokens);
  EXPECT_GT(result.all.ttft_ms.p50, 0);
  EXPECT_GE(result.all.e2e_ms.p50, result.all.ttft_ms.p50);
  EXPECT_GE(result.all.outside_ms.p50, 0) << "the server's own account is a part of ours";
  EXPECT_GT(result.all.mean_cache_bytes, 0);
  EXPECT_EQ(result.mechanisms[0].n_ok + result.mechanisms[1].n_ok, 30);
  EXPECT_GT(result.mechanisms[1].n_ok, 0);
  ASSERT_TRUE(result.server.has_value());
  EXPECT_GT(result.server->cache_bytes_total, 0);
  EXPECT_EQ(Server().WaitUntilIdle().cache_bytes_used(), 0);
}

TEST(LoadClientTest, RefusalsAreCountedByTheirCode) {
  LoadClient client(Server().server().address());
  WorkloadOptions workload = Options(*client.GetModel());
  workload.mix.resize(1);
  workload.context_tokens = 100000;
  workload.trace = {{0, 10, 3}, {0, 5000, 3}, {0, 10, 2000}};
  const PointResult result = RunLoad(client, workload, {.concurrency = 2, .n_requests = 6});
  EXPECT_EQ(result.all.n_ok, 2);
  EXPECT_EQ(result.all.errors.at("OUT_OF_RANGE"), 4);
  EXPECT_EQ(result.all.refusal_ms.n, 4);
}

TEST(LoadClientTest, ADeadlineEndsARequest) {
  LoadClient client(Server().server().address());
  WorkloadOptions workload = Options(*client.GetModel());
  workload.prompt_lengths = workload.output_lengths = UniformLengths{500, 500};
  const PointResult result =
      RunLoad(client, workload, {.concurrency = 8, .n_requests = 8, .timeout_s = 0.001});
  EXPECT_EQ(result.all.errors.at("DEADLINE_EXCEEDED"), 8);
}

size_t CountThreads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task"), end;
  return static_cast<size_t>(std::distance(tasks, end));
}

TEST(LoadClientTest, ManyStreamsNeedFewThreadsAndEndWhenCancelled) {
  LoadClient client(Server().server().address());
  WorkloadOptions workload = Options(*client.GetModel());
  workload.output_lengths = UniformLengths{900, 900};
  absl::Notification cancelled;
  size_t n_threads = 0;
  const PointRun run = RunPoint(Workload(workload), {.concurrency = 250, .n_requests = 250}, client,
                                cancelled, [&](const PointProgress& progress) {
                                  if (progress.n_in_flight < 250 || cancelled.HasBeenNotified())
                                    return;
                                  n_threads = CountThreads();
                                  cancelled.Notify();
                                  client.Cancel();
                                });
  EXPECT_EQ(run.records.size(), 250u);
  EXPECT_GT(n_threads, 0u);
  EXPECT_LT(n_threads, 100u);
  PointResult result;
  Evaluate(run, workload.mix, {}, result);
  EXPECT_GT(result.all.errors["CANCELLED"], 200);
  EXPECT_EQ(Server().WaitUntilIdle().cache_bytes_used(), 0);
}

// The binary, and the demo model.
class BenchBinaryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = std::make_unique<ChildProcess>(std::vector<std::string>{
        LOWKEY_BINARY, "serve", "--port", "0", "--json", "--cache-bytes", "64M"});
    ASSERT_TRUE(server_->WaitForOutput("\n"));
    const auto ready = nlohmann::json::parse(server_->output());
    address_ = "127.0.0.1:" + std::to_string(ready["port"].get<int>());
  }

  ChildProcess Start(std::vector<std::string> arguments) const {
    const std::vector<std::string> first = {LOWKEY_BINARY, "bench", "--server", address_};
    arguments.insert(arguments.begin(), first.begin(), first.end());
    return ChildProcess(arguments);
  }

  const TempDirectory directory_;
  std::unique_ptr<ChildProcess> server_;
  std::string address_;
};

TEST_F(BenchBinaryTest, SweepsAndReportsAsTextJsonAndHtml) {
  const std::string json_path = directory_.File("load.json"), html = directory_.File("load.html");
  ChildProcess bench =
      Start({"--rate", "40,80", "--requests", "12", "--warmup", "2", "--input-tokens",
             "uniform:8-64", "--output-tokens", "6", "--attention", "standard=1,atp --rank 1/8=1",
             "--slo-ttft-ms", "100000", "--output", json_path, "--html", html});
  ASSERT_EQ(bench.Wait(), 0) << bench.errors();
  for (const char* part : {"rate 40/s: 12 requests", "rate 80/s", "100% within", "atp --rank 1/8",
                           "server peak", "generator"}) {
    EXPECT_THAT(bench.output(), HasSubstr(part));
  }
  EXPECT_EQ(bench.errors(), "") << "progress is for terminals";
  const auto json = nlohmann::json::parse(ReadFileOrDie(json_path));
  ASSERT_EQ(json["points"].size(), 2u);
  for (const auto& point : json["points"]) {
    EXPECT_EQ(point["ok"], 12);
    EXPECT_EQ(point["good"], 12);
    EXPECT_EQ(point["output_tokens"], 72);
    EXPECT_EQ(point["generator"]["late_ms"]["count"], 14);
  }
  EXPECT_EQ(json["points"][0]["prompt_tokens"], json["points"][1]["prompt_tokens"]);
  EXPECT_THAT(ReadFileOrDie(html), HasSubstr("against throughput"));
}

TEST_F(BenchBinaryTest, AReportThatCannotBeWrittenIsSaidBeforeTheLoad) {
  ChildProcess bench = Start({"--requests", "100000", "--output", "/nonexistent/report.json"});
  EXPECT_EQ(bench.Wait(), 1);
  EXPECT_THAT(bench.errors(), HasSubstr("/nonexistent/report.json: cannot be written"));
}

TEST_F(BenchBinaryTest, ReadsPromptsAndArrivalsFromFiles) {
  const std::string trace = directory_.File("trace.jsonl"), text = directory_.File("text.txt");
  WriteFileOrDie(trace,
                 "{\"arrival_s\": 0, \"prompt_tokens\": 20, \"output_tokens\": 3}\n"
                 "{\"arrival_s\": 0.01, \"prompt_tokens\": 5000, \"output_tokens\": 4}\n");
  WriteFileOrDie(text, "Once upon a time there was a fox.");
  ChildProcess bench = Start({"--trace", trace, "--text", text, "--warmup", "0", "--json"});
  ASSERT_EQ(bench.Wait(), 0) << bench.errors();
  const auto point = nlohmann::json::parse(bench.output())["points"][0];
  EXPECT_EQ(point["load"], "trace");
  EXPECT_EQ(point["ok"], 2);
  EXPECT_EQ(point["output_tokens"], 7);
  EXPECT_EQ(point["cut_requests"], 1);
}

TEST_F(BenchBinaryTest, OpenAisApiMayHaveAnAddressOfItsOwn) {
  const auto run = [&](const std::string& http) {
    ChildProcess bench = Start({"--api", "openai", "--http", http, "--requests", "3", "--warmup",
                                "0", "--input-tokens", "8", "--output-tokens", "4", "--json"});
    EXPECT_EQ(bench.Wait(), 0) << bench.errors();
    return nlohmann::json::parse(bench.output())["points"][0]["ok"].get<int>();
  };
  EXPECT_EQ(run(address_), 3);
  EXPECT_EQ(run("127.0.0.1:1"), 0) << "nobody answers there";
  ChildProcess piped({"/bin/sh", "-c",
                      absl::StrCat("echo a-token-of-26-characters | ", LOWKEY_BINARY,
                                   " bench --server ", address_, " --api openai --http ", address_,
                                   " --token-file - --requests 1 --warmup 0 --output-tokens 2")});
  EXPECT_EQ(piped.Wait(), 0) << piped.errors();
  ChildProcess grpc = Start({"--http", address_});
  EXPECT_EQ(grpc.Wait(), 2);
  EXPECT_THAT(grpc.errors(), HasSubstr("expected --api openai"));
}

TEST_F(BenchBinaryTest, RefusesWhatTheModelCannotDo) {
  ChildProcess mechanism = Start({"--attention", "lasso=1"});
  EXPECT_EQ(mechanism.Wait(), 1);
  EXPECT_THAT(mechanism.errors(), HasSubstr("\"lasso\", but the server's model has standard, atp"));
  ChildProcess length = Start({"--input-tokens", "900000"});
  EXPECT_EQ(length.Wait(), 2);
  EXPECT_THAT(length.errors(), HasSubstr("the model's context has"));
}

TEST_F(BenchBinaryTest, ShowsProgressInATerminalUntilItIsInterrupted) {
  TerminalProcess bench({LOWKEY_BINARY, "bench", "--server", address_, "--concurrency", "3,4",
                         "--requests", "400000", "--output-tokens", "8"});
  ASSERT_TRUE(bench.WaitForText("point 1 of 2: concurrency 3"));
  ASSERT_TRUE(bench.WaitForText("of 400008"));
  ASSERT_TRUE(bench.WaitForText("first token"));
  bench.Type("\x03");
  ASSERT_TRUE(bench.WaitForText("interrupted"));
  EXPECT_EQ(bench.Wait(), 130);
}

}  // namespace
}  // namespace lowkey
