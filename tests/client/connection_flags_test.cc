#include "client/connection_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "server/auth/credential_flags.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kToken[] = "token-of-a-test-0000000";

class ConnectionFlagsTest : public ::testing::Test {
 protected:
  ConnectionFlagsTest() {
    const TestAuthority authority("test");
    const TestAuthority::Issued issued = authority.Issue("a");
    Write("ca", authority.certificate());
    Write("cert", issued.certificate);
    Write("key", issued.key);
    Write("token", std::string(kToken) + "\n");
    Write("tokens", R"({"tenants": [{"name": "a", "tokens": [)"
                    R"({"token": "token-of-a-test-0000000"}]}]})");
    unsetenv("LOWKEY_TOKEN");
  }
  ~ConnectionFlagsTest() override { unsetenv("LOWKEY_TOKEN"); }

  void Write(const std::string& name, const std::string& text) {
    WriteFileOrDie(directory_.File(name), text);
    std::filesystem::permissions(directory_.File(name), std::filesystem::perms(0600));
  }

  // Arguments beginning with @ are files of this test.
  FlagValues Parse(absl::Span<const Flag> flags, std::vector<std::string> arguments) const {
    for (std::string& argument : arguments) {
      if (argument.starts_with('@')) argument = directory_.File(argument.substr(1));
    }
    CommandSpec spec;
    spec.name = "try";
    spec.groups = {{"", flags}};
    FlagSources sources;
    sources.environment = [](const std::string&) { return std::nullopt; };
    auto values = ParseFlags(spec, arguments, {}, sources);
    EXPECT_TRUE(values.ok()) << values.status();
    return *std::move(values);
  }

  absl::StatusOr<ConnectOptions> Connection(const std::vector<std::string>& arguments) const {
    return ReadConnection(Parse(ClientFlags(), arguments));
  }
  absl::StatusOr<Credentials> Server(const std::vector<std::string>& arguments) {
    return ReadCredentials(Parse(CredentialFlags(), arguments),
                           [this](const std::string& line) { lines_.push_back(line); });
  }

  const TempDirectory directory_;
  std::vector<std::string> lines_;
};

TEST_F(ConnectionFlagsTest, ClientShowsNothingUnlessTold) {
  const auto options = Connection({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->address, "127.0.0.1:50051");
  EXPECT_EQ(options->token, std::nullopt);
  EXPECT_FALSE(options->tls.has_value());
}

TEST_F(ConnectionFlagsTest, ServerNeedsNoPort) {
  const std::pair<const char*, const char*> cases[] = {
      {"10.0.0.5", "10.0.0.5:50051"}, {"[::1]", "[::1]:50051"}, {"::1", "[::1]:50051"},
      {"host", "host:50051"},         {"host:1", "host:1"},     {"dns:///host", "dns:///host"}};
  for (const auto& [given, address] : cases) {
    EXPECT_EQ(Connection({"--server", given})->address, address);
  }
}

TEST_F(ConnectionFlagsTest, ClientsTokenComesFromItsFileOrTheEnvironment) {
  EXPECT_EQ(Connection({"--token-file", "@token"})->token, kToken);
  setenv("LOWKEY_TOKEN", "another-token-0000000000", 1);
  EXPECT_EQ(Connection({})->token, "another-token-0000000000");
  EXPECT_EQ(Connection({"--token-file", "@token"})->token, kToken) << "the flag wins";
  setenv("LOWKEY_TOKEN", "short secret", 1);
  const absl::Status status = Connection({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("secret")));
}

TEST_F(ConnectionFlagsTest, TokenGoesToOtherMachinesOverTlsOnlyUnlessInsecure) {
  const std::vector<std::string> far = {"--server", "10.0.0.5:50051", "--token-file", "@token"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), far.begin(), far.end());
    return Connection(more).status().code();
  };
  EXPECT_EQ(with({}), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(with({"--insecure"}), absl::StatusCode::kOk);
  EXPECT_EQ(with({"--tls-ca", "@ca"}), absl::StatusCode::kOk);
}

TEST_F(ConnectionFlagsTest, ClientsCertificateNeedsItsKeyAndAnAuthority) {
  const auto both = Connection({"--tls-ca", "@ca", "--tls-cert", "@cert", "--tls-key", "@key"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT(both->tls->authority, HasSubstr("BEGIN CERTIFICATE"));
  EXPECT_THAT(both->tls->own->key, HasSubstr("PRIVATE KEY"));
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--tls-cert", "@cert", "--tls-key", "@key"}, "--tls-ca"},
      {{"--tls-ca", "@ca", "--tls-cert", "@cert"}, "--tls-key"},
      {{"--tls-ca", "@ca", "--tls-key", "@key"}, "--tls-cert"},
      {{"--tls-ca", "@key"}, "expected PEM certificates"},
      {{"--tls-ca", "@key"}, "--tls-ca: "},
      {{"--tls-ca", "@ca", "--tls-cert", "@ca", "--tls-key", "@key"}, "is not the key of"}};
  for (const auto& [arguments, part] : cases) {
    const absl::Status status = Connection(arguments).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST_F(ConnectionFlagsTest, ServerIsGuardedByWhatItsFlagsName) {
  const auto none = Server({});
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->tls == nullptr && none->tokens == nullptr);
  const auto tls = Server({"--tls-cert", "@cert", "--tls-key", "@key", "--tokens", "@tokens"});
  ASSERT_TRUE(tls.ok()) << tls.status();
  EXPECT_NE(tls->tls, nullptr);
  EXPECT_FALSE(tls->has_client_certificates);
  EXPECT_EQ(tls->tokens->Get()->n_tokens(), 1u);
  const auto mutual =
      Server({"--tls-cert", "@cert", "--tls-key", "@key", "--tls-client-ca", "@ca"});
  ASSERT_TRUE(mutual.ok()) << mutual.status();
  EXPECT_TRUE(mutual->has_client_certificates);
  EXPECT_TRUE(mutual->tls->Get()->authority.has_value());
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ConnectionFlagsTest, ServersBadFilesAreNamed) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--tls-cert", "@cert"}, "--tls-key: not given"},
      {{"--tls-key", "@key"}, "--tls-cert: not given"},
      {{"--tls-client-ca", "@ca"}, "--tls-cert: not given"},
      {{"--tls-cert", "@cert", "--tls-key", "@absent"}, "absent: cannot be read"},
      {{"--tls-cert", "@cert", "--tls-key", "@absent"}, "--tls-key: "},
      {{"--tls-cert", "@cert", "--tls-key", "@key", "--tls-client-ca", "@absent"},
       "--tls-client-ca: "},
      {{"--tls-cert", "@ca", "--tls-key", "@key"}, "is not the key of"},
      {{"--tokens", "@cert"}, "cert: not JSON"},
      {{"--tokens", "@absent"}, "absent: cannot be read"},
      {{"--tokens", "@absent"}, "--tokens: "}};
  for (const auto& [arguments, part] : cases) {
    EXPECT_THAT(std::string(Server(arguments).status().message()), HasSubstr(part));
  }
}

TEST_F(ConnectionFlagsTest, SecretsThatEveryoneCanReadAreWarnedOf) {
  std::filesystem::permissions(directory_.File("tokens"), std::filesystem::perms(0644));
  EXPECT_TRUE(Server({"--tokens", "@tokens"}).ok());
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("warning: everyone on this machine can read")));
}

}  // namespace
}  // namespace lowkey
