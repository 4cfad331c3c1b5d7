// The real `lowkey serve` and its standard error: unread, without a reader, closed; and the signals
// that must not end it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lowkey/v1/generation.grpc.pb.h"
#include "tests/integration/child_process.h"
#include "tests/server/front/http_get.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    EXPECT_EQ(mkfifo(Fifo().c_str(), 0600), 0);
    // Open for writing too, so that neither side waits for the other.
    pipe_ = open(Fifo().c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_GE(pipe_, 0);
  }
  ~LogTest() override { ClosePipe(); }

  std::string Fifo() const { return directory_.File("stderr"); }

  void ClosePipe() {
    if (pipe_ >= 0) close(pipe_);
    pipe_ = -1;
  }

  // Serves with standard error as a shell's `redirection` says.
  void Serve(const std::string& redirection, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"/bin/sh",
                                          "-c",
                                          "exec \"$@\" " + redirection,
                                          "sh",
                                          LOWKEY_BINARY,
                                          "serve",
                                          "--model",
                                          SourcePath("models/tales"),
                                          "--port",
                                          "0",
                                          "--json",
                                          "--threads",
                                          "1",
                                          "--cache-bytes",
                                          "64M",
                                          "--profile",
                                          "none",
                                          "--log-requests",
                                          "--metrics",
                                          "127.0.0.1:0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<ChildProcess>(arguments);
    ASSERT_TRUE(server_->WaitForOutput("\n")) << server_->errors();
    const auto ready = nlohmann::json::parse(server_->output());
    metrics_port_ = ready["metrics_port"].get<int>();
    generation_ = v1::Generation::NewStub(grpc::CreateChannel(ready["address"].get<std::string>(),
                                                              grpc::InsecureChannelCredentials()));
  }

  // Sends requests that are refused, each of which is a line in the log.
  void SendBadRequests(int n) const {
    for (int i = 0; i < n; ++i) {
      grpc::ClientContext context;
      v1::GenerateRequest request;
      request.set_text("Once");
      request.set_n(9);
      v1::GenerateResponse response;
      const grpc::Status status = generation_->Generate(&context, request, &response);
      ASSERT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
          << i << ": " << status.error_message();
    }
  }

  // Reads the log until `text` came.
  void AwaitLog(const std::string& text) {
    char buffer[4096];
    while (log_.find(text) == std::string::npos) {
      const ssize_t n = read(pipe_, buffer, sizeof(buffer));
      ASSERT_GT(n, 0) << log_;
      log_.append(buffer, static_cast<size_t>(n));
    }
  }

  const TempDirectory directory_;
  int pipe_ = -1;
  std::string log_;
  std::unique_ptr<ChildProcess> server_;
  int metrics_port_ = 0;
  std::unique_ptr<v1::Generation::Stub> generation_;
};

TEST_F(LogTest, UnreadPipeDelaysNobody) {
  Serve("2>" + Fifo());
  SendBadRequests(2000);
  const std::string metrics = HttpGet(metrics_port_, "/metrics").text;
  EXPECT_THAT(metrics, HasSubstr("lowkey:log_lines_dropped_total{model_name=\"tales\"} "));
  EXPECT_THAT(metrics, Not(HasSubstr("lowkey:log_lines_dropped_total{model_name=\"tales\"} 0\n")));
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(LogTest, ServesOnWithoutAReader) {
  Serve("2>" + Fifo());
  ClosePipe();
  SendBadRequests(10);
  server_->Signal(SIGPIPE);
  SendBadRequests(1);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(LogTest, ServesOnWithClosedStandardFiles) {
  Serve("<&- 2>&-");
  SendBadRequests(10);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(LogTest, HangUpReadsCredentialsAgain) {
  const std::string tokens = directory_.File("tokens");
  WriteFileOrDie(tokens,
                 R"({"tenants": [{"name": "a", "tokens": [{"token": "token-of-the-tenant-a"}]}]})");
  Serve("2>" + Fifo(), {"--tokens", tokens});
  server_->Signal(SIGHUP);
  AwaitLog("SIGHUP: reading the credentials again");
  AwaitLog(tokens + ": read again");
  WriteFileOrDie(tokens, "{");
  server_->Signal(SIGHUP);
  AwaitLog("what it was stays in force");
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(LogTest, HangUpWithoutCredentialsChangesNothing) {
  Serve("2>" + Fifo());
  server_->Signal(SIGHUP);
  AwaitLog("there are no credentials");
  SendBadRequests(1);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
}

// The command of the container image.
TEST(ExposureTest, ImageSaysHowToGiveCredentialsOrToDoWithout) {
  ChildProcess child({LOWKEY_BINARY, "serve", "--host", "0.0.0.0", "--port", "0"});
  EXPECT_EQ(child.Wait(), 2);
  for (const char* name : {"--tokens", "LOWKEY_TOKENS", "--insecure", "LOWKEY_INSECURE=true"}) {
    EXPECT_THAT(child.errors(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace lowkey
