// A server that starts anew finds the prompts of the one before it (docs/prefix_files.md).
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "tests/integration/child_process.h"
#include "tests/server/front/http_get.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class PrefixFilesTest : public ::testing::Test {
 protected:
  std::vector<std::string> Command() const {
    return {
        LOWKEY_BINARY, "serve",        "--port", "0",         "--model", SourcePath("models/tales"),
        "--json",      "--threads",    "1",      "--profile", "none",    "--metrics",
        "127.0.0.1:0", "--prefix-dir", folder_};
  }

  void Serve() {
    server_ = std::make_unique<ChildProcess>(Command());
    ASSERT_TRUE(server_->WaitForOutput("\n")) << server_->errors();
    const auto ready = nlohmann::json::parse(server_->output());
    metrics_port_ = ready["metrics_port"].get<int>();
    generation_ = v1::Generation::NewStub(grpc::CreateChannel(ready["address"].get<std::string>(),
                                                              grpc::InsecureChannelCredentials()));
  }

  v1::GenerateResponse Generate() {
    v1::GenerateRequest request;
    std::string text;
    for (int i = 0; i < 60; ++i) absl::StrAppend(&text, "Tale ", i, ": a fox met a bear. ");
    request.set_text(text);
    request.set_max_new_tokens(20);
    request.mutable_sampling()->set_seed(7);
    v1::GenerateResponse response;
    grpc::ClientContext context;
    const grpc::Status status = generation_->Generate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  const TempDirectory temp_;
  const std::string folder_ = temp_.File("prefixes");
  std::unique_ptr<ChildProcess> server_;
  int metrics_port_ = 0;
  std::unique_ptr<v1::Generation::Stub> generation_;
};

TEST_F(PrefixFilesTest, APromptIsFoundAfterAStopAndAfterADeath) {
  Serve();
  const v1::GenerateResponse first = Generate();
  EXPECT_EQ(first.final().usage().cached_tokens(), 0);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  for (const int signal : {SIGKILL, SIGTERM}) {
    Serve();
    const v1::GenerateResponse again = Generate();
    EXPECT_GT(again.final().usage().cached_tokens(), 300);
    EXPECT_EQ(again.choices(0).text(), first.choices(0).text());
    EXPECT_THAT(HttpGet(metrics_port_, "/metrics").text,
                HasSubstr(absl::StrCat("lowkey:prefix_file_tokens_total{model_name=\"tales\"} ",
                                       again.final().usage().cached_tokens(), "\n")));
    server_->Signal(signal);
    server_->Wait();
  }
}

TEST_F(PrefixFilesTest, WrongFilesAreReportedAndComputedAgain) {
  Serve();
  const v1::GenerateResponse first = Generate();
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    WriteFileOrDie(file.path(), "wrong");
  }
  Serve();
  const v1::GenerateResponse again = Generate();
  EXPECT_EQ(again.final().usage().cached_tokens(), 0);
  EXPECT_EQ(again.choices(0).text(), first.choices(0).text());
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->errors(), HasSubstr("lowkey serve: prefix files: "));
}

TEST_F(PrefixFilesTest, WhatCannotBeIsRefusedBeforeTheLoad) {
  WriteFileOrDie(temp_.File("file"), "x");
  for (const auto& [words, code, says] :
       {std::tuple(std::vector<std::string>{"--prefix-dir", temp_.File("file")}, 1,
                   "expected a folder"),
        std::tuple(std::vector<std::string>{"--prefix-dir", temp_.File("file/a")}, 1,
                   "cannot be made"),
        std::tuple(std::vector<std::string>{"--prefix-cache", "off"}, 2, "--prefix-cache off"),
        std::tuple(std::vector<std::string>{"--prefix-dir-bytes", "0"}, 2, "more than 0")}) {
    std::vector<std::string> command = Command();
    command.insert(command.end(), words.begin(), words.end());
    ChildProcess child(command);
    EXPECT_EQ(child.Wait(), code) << says;
    EXPECT_THAT(child.errors(), HasSubstr(says));
  }
}

}  // namespace
}  // namespace lowkey
