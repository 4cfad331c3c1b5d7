// The client of event streams against a real server, in clear and under TLS.
#include "client/load/sse_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "absl/strings/str_cat.h"
#include "server/front/server.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// Nobody asks it for anything but the load.
class NoTarget final : public LoadTarget {
 public:
  void Start(const GenerationRequest&, std::function<void(StreamRecord)>) override {}
  void Cancel() override {}
  std::optional<ServerLoad> Poll() override { return std::nullopt; }
  int64_t n_tokens() const override { return 0; }
};

class SseClientTest : public ::testing::Test {
 protected:
  // With TLS clients must show a certificate of the same authority.
  void Serve(bool has_tls, const std::string& host = "127.0.0.1") {
    ServerOptions options = {.host = host, .port = 0};
    if (has_tls) {
      const TestAuthority::Issued own = authority_.Issue("server");
      const TlsPaths paths = {directory_.File("cert"), directory_.File("key"),
                              directory_.File("ca")};
      WriteFileOrDie(paths.certificate, own.certificate);
      WriteFileOrDie(paths.key, own.key);
      WriteFileOrDie(*paths.authority, authority_.certificate());
      options.credentials.tls = *OpenTls(paths, [](const std::string&) {});
      options.credentials.has_client_certificates = true;
    }
    auto server = Server::Start(service_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  ClientTls Tls(const TestAuthority& trusted) const {
    const TestAuthority::Issued own = authority_.Issue("client");
    return {trusted.certificate(), TlsFiles{own.certificate, own.key, std::nullopt}};
  }

  void Connect(const std::string& host, std::optional<ClientTls> tls) {
    auto client = SseClient::Connect(
        {absl::StrCat(host, ":", server_->port()), std::nullopt, std::move(tls)}, "tales", other_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  std::future<StreamRecord> Start() {
    GenerationRequest request;
    request.input = TokenList{1, 2, 3};
    request.max_new_tokens = 2;
    auto record = std::make_shared<std::promise<StreamRecord>>();
    client_->Start(request, [record](StreamRecord value) { record->set_value(std::move(value)); });
    return record->get_future();
  }

  // Streams two answers, the second of them over the first one's connection.
  void ExpectAnswers() {
    for (int i = 0; i < 2; ++i) {
      std::future<StreamRecord> record = Start();
      ASSERT_TRUE(engine_.WaitForRunning(1));
      const RequestId id = engine_.ids()[0];
      for (const int32_t token : BytePieces("ab")) engine_.Emit(id, token);
      engine_.Finish(id, FinishReason::kLength);
      const StreamRecord got = record.get();
      EXPECT_TRUE(got.status.ok()) << got.status;
      EXPECT_EQ(got.n_output_tokens, 2);
    }
    EXPECT_EQ(client_->n_tokens(), 4);
  }

  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}}};
  const TempDirectory directory_;
  const TestAuthority authority_{"ours"}, other_authority_{"others"};
  std::unique_ptr<Server> server_;
  NoTarget other_;
  std::unique_ptr<SseClient> client_;
};

TEST_F(SseClientTest, StreamsInClear) {
  Serve(/*has_tls=*/false);
  Connect("127.0.0.1", std::nullopt);
  ExpectAnswers();
}

TEST_F(SseClientTest, StreamsUnderTls) {
  Serve(/*has_tls=*/true);
  for (const char* host : {"localhost", "127.0.0.1"}) {
    Connect(host, Tls(authority_));
    ExpectAnswers();
  }
}

TEST_F(SseClientTest, ServerOfAnotherAuthorityIsRefused) {
  Serve(/*has_tls=*/true);
  Connect("localhost", Tls(other_authority_));
  const StreamRecord record = Start().get();
  EXPECT_EQ(record.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(record.status.message()), HasSubstr("the server's certificate: "));
}

TEST_F(SseClientTest, CertificateMustNameTheHost) {
  Serve(/*has_tls=*/true, "127.0.0.2");
  Connect("127.0.0.2", Tls(authority_));
  const StreamRecord record = Start().get();
  EXPECT_EQ(record.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(record.status.message()), HasSubstr("IP address mismatch"));
}

TEST_F(SseClientTest, FilesThatAreNoCertificatesAreRefused) {
  Serve(/*has_tls=*/false);
  const auto client = SseClient::Connect(
      {absl::StrCat("localhost:", server_->port()), std::nullopt, ClientTls{"no PEM"}}, "tales",
      other_);
  EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("--tls-ca"));
}

}  // namespace
}  // namespace lowkey
