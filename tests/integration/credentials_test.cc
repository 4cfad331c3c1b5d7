// The real `lowkey` binary, server and clients, with TLS and tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/integration/child_process.h"
#include "tests/testing/certificates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "token-of-the-tenant-a-00";
constexpr char kNewToken[] = "token-of-the-tenant-a-01";
constexpr char kOtherTenants[] = "token-of-the-tenant-b-00";

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    const TestAuthority::Issued server = authority_.Issue("server"),
                                client = authority_.Issue("client");
    WriteFileOrDie(File("ca"), authority_.certificate());
    WriteFileOrDie(File("server.pem"), server.certificate);
    WriteFileOrDie(File("server.key"), server.key);
    WriteFileOrDie(File("client.pem"), client.certificate);
    WriteFileOrDie(File("client.key"), client.key);
    WriteFileOrDie(File("token"), kToken);
    WriteTokens(kToken);
  }

  std::string File(const std::string& name) const { return directory_.File(name); }

  void WriteTokens(const std::string& token) const {
    WriteFileOrDie(
        File("tokens"),
        absl::StrCat(R"({"tenants": [{"name": "a", "max_live_requests": 4, "tokens": [{"token": ")",
                     token, R"("}]}, {"name": "b", "tokens": [{"token": ")", kOtherTenants,
                     "\"}]}]}"));
  }

  static std::vector<std::string> ServeArguments(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {LOWKEY_BINARY, "serve",
                                          "--model",     SourcePath("models/tales"),
                                          "--port",      "0",
                                          "--json",      "--threads",
                                          "1",           "--cache-bytes",
                                          "64M",         "--profile",
                                          "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  void Serve(const std::vector<std::string>& more) {
    server_ = std::make_unique<ChildProcess>(ServeArguments(more));
    ASSERT_TRUE(server_->WaitForOutput("\n")) << server_->errors();
    const auto ready = nlohmann::json::parse(server_->output());
    address_ = absl::StrCat("localhost:", ready["port"].get<int>());
  }

  struct Ran {
    int code = 0;
    std::string output, errors;
  };

  Ran Run(const std::string& command, std::vector<std::string> arguments,
          const std::vector<std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), {LOWKEY_BINARY, command, "--server", address_});
    ChildProcess child(arguments, environment);
    const int code = child.Wait();
    return {code, child.output(), child.errors()};
  }

  const TempDirectory directory_;
  const TestAuthority authority_{"test"};
  std::unique_ptr<ChildProcess> server_;
  std::string address_;
};

TEST_F(CredentialsTest, GuardedServerMayBeReachedByOthersAndAsksForEverything) {
  Serve({"--host", "0.0.0.0", "--tls-cert", File("server.pem"), "--tls-key", File("server.key"),
         "--tls-client-ca", File("ca"), "--tokens", File("tokens"), "--log-requests"});
  const std::vector<std::string> tls = {"--tls-ca",         File("ca"),  "--tls-cert",
                                        File("client.pem"), "--tls-key", File("client.key")};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), tls.begin(), tls.end());
    return more;
  };
  EXPECT_EQ(Run("health", {}).code, 1) << "in clear";
  EXPECT_EQ(Run("health", {"--tls-ca", File("ca")}).code, 1) << "without a certificate";
  EXPECT_EQ(Run("health", tls).code, 0) << "health needs no token";
  const Ran none = Run("generate", with({"Once"}));
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.errors, HasSubstr("LOWKEY_TOKEN"));
  const Ran ran = Run("generate", with({"--token-file", File("token"), "--max-new-tokens", "4",
                                        "--ignore-eos", "Once upon"}));
  EXPECT_EQ(ran.code, 0) << ran.errors;
  EXPECT_THAT(ran.errors, HasSubstr("4 generated"));
  for (const char* api : {"grpc", "openai"}) {
    const Ran bench =
        Run("bench",
            with({"--api", api, "--requests", "4", "--concurrency", "2", "--input-tokens", "8",
                  "--output-tokens", "2", "--warmup", "0", "--json"}),
            {absl::StrCat("LOWKEY_TOKEN=", kToken)});
    ASSERT_EQ(bench.code, 0) << bench.errors;
    const auto point = nlohmann::json::parse(bench.output)["points"][0];
    EXPECT_EQ(point["ok"], 4) << point;
  }
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->errors(), HasSubstr("\"tenant\":\"a\",\"status\":\"OK\""));
  EXPECT_THAT(server_->errors(), Not(HasSubstr(kToken)));
}

TEST_F(CredentialsTest, TokensAloneGuardTheLoopback) {
  Serve({"--tokens", File("tokens")});
  const auto code = [this](const std::string& token) {
    return Run("generate", {"--max-new-tokens", "1", "Once"},
               {absl::StrCat("LOWKEY_TOKEN=", token)})
        .code;
  };
  EXPECT_EQ(code(kToken), 0);
  EXPECT_EQ(code(kNewToken), 1);
  WriteTokens(kNewToken);
  EXPECT_EQ(code(kToken), 1) << "replaced while the server runs";
  EXPECT_EQ(code(kNewToken), 0);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->errors(), HasSubstr("read again"));
}

TEST_F(CredentialsTest, CachedPrefixesStayWithTheirTenant) {
  Serve({"--tokens", File("tokens")});
  std::string prompt;
  for (int i = 0; i < 25; ++i) absl::StrAppend(&prompt, "One day, a fox met ", i, " friends. ");
  const auto cached_tokens = [&](const std::string& token) {
    const Ran ran = Run("generate", {"--max-new-tokens", "2", "--json", prompt},
                        {absl::StrCat("LOWKEY_TOKEN=", token)});
    EXPECT_EQ(ran.code, 0) << ran.errors;
    const auto answer = nlohmann::json::parse(ran.output, nullptr, /*allow_exceptions=*/false);
    return answer["final"]["usage"]["cached_tokens"].get<int>();
  };
  EXPECT_EQ(cached_tokens(kToken), 0);
  EXPECT_GT(cached_tokens(kToken), 125);
  EXPECT_EQ(cached_tokens(kOtherTenants), 0) << "what a left is not b's";
  EXPECT_GT(cached_tokens(kOtherTenants), 125);
}

TEST_F(CredentialsTest, BadFilesEndTheServerBeforeItLoads) {
  WriteFileOrDie(File("bad"), "{");
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--tokens", File("bad")}, "lowkey serve: --tokens: "},
      {{"--tokens", File("bad")}, "bad: not JSON"},
      {{"--profile", File("bad")}, "lowkey serve: --profile: "},
      {{"--profile", File("bad")}, "bad: not JSON"},
      {{"--tokens", File("absent")}, "absent: cannot be read"},
      {{"--tls-cert", File("server.pem"), "--tls-key", File("client.key")}, "is not the key of"},
      {{"--tls-cert", File("server.pem")}, "--tls-key"},
      {{"--host", "0.0.0.0", "--tokens", File("tokens")}, "--tls-cert"},
      {{"--host", "0.0.0.0", "--tls-cert", File("server.pem"), "--tls-key", File("server.key")},
       "--tokens"}};
  for (const auto& [arguments, says] : cases) {
    ChildProcess server(ServeArguments(arguments));
    EXPECT_NE(server.Wait(), 0);
    EXPECT_THAT(server.errors(), HasSubstr(says));
    EXPECT_EQ(server.output(), "");
  }
}

TEST_F(CredentialsTest, TokenIsNotSentInClearToOtherMachines) {
  address_ = "192.0.2.1:50051";
  const Ran ran = Run("generate", {"--token-file", File("token"), "Once"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.errors, HasSubstr("would travel in clear"));
  EXPECT_EQ(Run("generate", {"--token", kToken, "Once"}).code, 2) << "there is no such flag";
}

}  // namespace
}  // namespace lowkey
