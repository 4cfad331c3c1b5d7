// The commands that take --model hf:OWNER/NAME, against a hub in this process.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/child_process.h"
#include "tests/integration/terminal_process.h"
#include "tests/server/front/http_get.h"
#include "tests/server/hub/fake_hub.h"
#include "tests/testing/certificates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

int FreePort() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(socket);
  return ntohs(address.sin_port);
}

class HubTest : public ::testing::Test {
 protected:
  HubTest() {
    for (const fs::directory_entry& entry : fs::directory_iterator(SourcePath("models/tales"))) {
      const std::string bytes = ReadFileOrDie(entry.path().string());
      const std::string name = entry.path().filename().string();
      hub_.Add(name, bytes);
      if (name != "README.md") n_model_bytes_ += bytes.size();
    }
    environment_ = {absl::StrCat("HF_ENDPOINT=", hub_.endpoint()),
                    absl::StrCat("HF_HOME=", home_.path()), "HF_TOKEN=secret",
                    "NO_PROXY=127.0.0.1"};
  }

  // Starts `lowkey tokenize` with the hub's model, which needs no weights but fetches them.
  ChildProcess Tokenize(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {LOWKEY_BINARY, "tokenize", "--model", "hf:acme/model"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back("Once upon a time");
    return ChildProcess(arguments, environment_);
  }
  // Sends half of the weights once, and then nothing more.
  void StallOnce() {
    hub_.SetScript([this](const HubRequest& request, int n_before) {
      std::optional<HubAnswer> answer;
      if (absl::EndsWith(request.path, "/model.safetensors") && n_before == 0) {
        answer = hub_.Right(request);
        answer->bytes.resize(answer->bytes.size() / 2);
        answer->stays_open = true;
      }
      return answer;
    });
  }
  std::string PartPath() const {
    return home_.File("hub/models--acme--model/blobs/") +
           Sha256(ReadFileOrDie(SourcePath("models/tales/model.safetensors"))) + ".part";
  }
  // Waits until the part of the weights has as many bytes.
  void AwaitPart(size_t n_bytes) const {
    std::error_code error;
    for (int i = 0; i < 3000; ++i) {
      if (fs::exists(PartPath(), error) && fs::file_size(PartPath(), error) >= n_bytes) return;
      usleep(10'000);
    }
    ADD_FAILURE() << PartPath() << ": not " << n_bytes << " bytes after 30 s";
  }

  FakeHub hub_;
  TempDirectory home_;
  size_t n_model_bytes_ = 0;
  std::vector<std::string> environment_;
};

TEST_F(HubTest, ServesAFetchedModelByItsName) {
  ChildProcess server({LOWKEY_BINARY, "serve", "--model", "hf:acme/model", "--port", "0",
                       "--profile", "none", "--threads", "1"},
                      environment_);
  ASSERT_TRUE(server.WaitForOutput("ready: model on 127.0.0.1:"));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_THAT(server.errors(), HasSubstr("fetching hf:acme/model: "));
  EXPECT_EQ(hub_.n_file_bytes(), n_model_bytes_);
  for (const HubRequest& request : hub_.requests()) {
    EXPECT_EQ(request.Field("authorization"), "Bearer secret");
  }
}

TEST_F(HubTest, HealthAnswersWhileTheModelIsFetched) {
  StallOnce();
  const int port = FreePort();
  ChildProcess server({LOWKEY_BINARY, "serve", "--model", "hf:acme/model", "--port", "0",
                       "--metrics", absl::StrCat("127.0.0.1:", port)},
                      environment_);
  AwaitPart(4'000'000);
  EXPECT_EQ(HttpGet(port, "/health").code, 200);
  EXPECT_EQ(HttpGet(port, "/ready").code, 503);
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 130);
}

TEST_F(HubTest, OnlyTrustedHubsAreAsked) {
  if (std::system("openssl version >/dev/null 2>&1") != 0) GTEST_SKIP() << "there is no openssl";
  const TestAuthority ours("ours"), other("other");
  const TestAuthority::Issued issued = ours.Issue("server");
  WriteFileOrDie(home_.File("ours.pem"), ours.certificate());
  WriteFileOrDie(home_.File("other.pem"), other.certificate());
  WriteFileOrDie(home_.File("server.pem"), issued.certificate);
  WriteFileOrDie(home_.File("server.key"), issued.key);
  const int port = FreePort();
  // Answers every request with a page about the connection.
  ChildProcess hub({"/usr/bin/openssl", "s_server", "-accept", absl::StrCat(port), "-www", "-cert",
                    home_.File("server.pem"), "-key", home_.File("server.key")});
  ASSERT_TRUE(hub.WaitForOutput("ACCEPT"));
  environment_[0] = absl::StrCat("HF_ENDPOINT=https://127.0.0.1:", port);
  environment_.push_back("SSL_CERT_FILE=" + home_.File("other.pem"));
  ChildProcess refused = Tokenize();
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.errors(), HasSubstr("certificate"));
  EXPECT_THAT(refused.errors(), Not(HasSubstr("trying again")));
  environment_.back() = "SSL_CERT_FILE=" + home_.File("ours.pem");
  ChildProcess asked = Tokenize();
  EXPECT_EQ(asked.Wait(), 1);
  EXPECT_THAT(asked.errors(), HasSubstr("the hub's answer: not JSON"));
}

TEST_F(HubTest, EveryCommandTakesTheSameModelOffline) {
  ChildProcess first = Tokenize();
  EXPECT_EQ(first.Wait(), 0) << first.errors();
  ChildProcess local(
      {LOWKEY_BINARY, "tokenize", "--model", SourcePath("models/tales"), "Once upon a time"});
  EXPECT_EQ(local.Wait(), 0);
  EXPECT_EQ(first.output(), local.output());
  const size_t n = hub_.requests().size();
  ChildProcess offline = Tokenize({"--offline"});
  EXPECT_EQ(offline.Wait(), 0) << offline.errors();
  EXPECT_EQ(offline.output(), local.output());
  ChildProcess inspect({LOWKEY_BINARY, "inspect", "--offline", "--model", "hf:acme/model"},
                       environment_);
  EXPECT_EQ(inspect.Wait(), 0) << inspect.errors();
  EXPECT_EQ(hub_.requests().size(), n);
}

TEST_F(HubTest, ShardsAndGgufFilesAreOpenedInTheCache) {
  FakeHub hub;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(SourcePath("tests/golden/sharded"))) {
    hub.Add(entry.path().filename().string(), ReadFileOrDie(entry.path().string()));
  }
  const std::string gguf = ReadFileOrDie(SourcePath("tests/golden/gguf_llama/model.gguf"));
  hub.Add("few/Model-Q8_0.gguf", gguf);
  hub.Add("few/Model-F16.gguf", "not this one");
  environment_[0] = absl::StrCat("HF_ENDPOINT=", hub.endpoint());
  for (const std::string name : {"hf:acme/model", "hf:acme/model:q8_0"}) {
    const size_t n_bytes = hub.n_file_bytes();
    ChildProcess inspect({LOWKEY_BINARY, "inspect", "--model", name}, environment_);
    EXPECT_EQ(inspect.Wait(), 0) << inspect.errors();
    EXPECT_THAT(inspect.output(), HasSubstr("LlamaForCausalLM"));
    if (name.ends_with("q8_0")) {
      EXPECT_EQ(hub.n_file_bytes() - n_bytes, gguf.size());
    }
  }
  ChildProcess none({LOWKEY_BINARY, "inspect", "--model", "hf:acme/model:Q4_K_M"}, environment_);
  EXPECT_EQ(none.Wait(), 1);
  EXPECT_THAT(none.errors(), HasSubstr("no GGUF file has \"Q4_K_M\" in its name; there are "
                                       "few/Model-F16.gguf, few/Model-Q8_0.gguf"));
}

TEST_F(HubTest, OfflineWithoutTheModelIsAnError) {
  environment_.push_back("LOWKEY_OFFLINE=1");
  ChildProcess offline = Tokenize();
  EXPECT_EQ(offline.Wait(), 1);
  EXPECT_THAT(offline.errors(), HasSubstr("hf:acme/model: the model is not in the cache " +
                                          home_.File("hub") + ", and the hub is not asked"));
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(HubTest, AReferenceThatIsNoneIsABadFlag) {
  ChildProcess bad({LOWKEY_BINARY, "inspect", "--model", "hf:../model"}, environment_);
  EXPECT_EQ(bad.Wait(), 2);
  EXPECT_THAT(bad.errors(),
              HasSubstr("--model: \"hf:../model\", expected hf:OWNER/NAME[@REVISION][:QUANT]"));
}

TEST_F(HubTest, AnInterruptLeavesAPartThatTheNextCallCompletes) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    fs::remove_all(home_.File("hub"));
    hub_.SetScript({});
    int n_before = static_cast<int>(hub_.n_requests("/model.safetensors"));
    hub_.SetScript([this, n_before](const HubRequest& request, int n) {
      std::optional<HubAnswer> answer;
      if (absl::EndsWith(request.path, "/model.safetensors") && n == n_before) {
        answer = hub_.Right(request);
        answer->bytes.resize(answer->bytes.size() / 2);
        answer->stays_open = true;
      }
      return answer;
    });
    const size_t n_bytes = hub_.n_file_bytes();
    ChildProcess stopped = Tokenize();
    AwaitPart(4'000'000);
    stopped.Signal(signal);
    EXPECT_EQ(stopped.Wait(), signal == SIGKILL ? 128 + SIGKILL : 130);
    ChildProcess next = Tokenize();
    EXPECT_EQ(next.Wait(), 0) << next.errors();
    // Some of the bytes that were sent may not have reached the disk.
    EXPECT_LT(hub_.n_file_bytes() - n_bytes, n_model_bytes_ + 500'000);
  }
}

TEST_F(HubTest, TwoProcessesFetchEveryByteOnce) {
  ChildProcess first = Tokenize(), second = Tokenize();
  EXPECT_EQ(first.Wait(), 0) << first.errors();
  EXPECT_EQ(second.Wait(), 0) << second.errors();
  EXPECT_EQ(hub_.n_file_bytes(), n_model_bytes_);
}

TEST_F(HubTest, ATerminalShowsProgress) {
  StallOnce();
  for (const std::string& entry : environment_) putenv(const_cast<char*>(entry.c_str()));
  TerminalProcess terminal({LOWKEY_BINARY, "inspect", "--model", "hf:acme/model"});
  EXPECT_TRUE(terminal.WaitForText("fetching model"));
  EXPECT_TRUE(terminal.WaitForText("MiB"));
  terminal.Type("\x03");
  EXPECT_EQ(terminal.Wait(), 130);
}

}  // namespace
}  // namespace lowkey
