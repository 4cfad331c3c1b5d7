// A server's port as callers with and without credentials see it.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/call_status.h"
#include "client/client.h"
#include "engine/base/retry_after.h"
#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/front/call_guard.h"
#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/front/http_get.h"
#include "tests/server/request_log_text.h"
#include "tests/server/testing.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr char kAll[] = "token-with-all-rights-0";
constexpr char kGenerate[] = "token-that-generates-00";
constexpr char kRead[] = "token-that-only-reads-0";
constexpr char kOther[] = "token-of-someone-else-0";
constexpr char kWrong[] = "token-that-nobody-has-0";

constexpr char kTable[] = R"({"tenants": [
    {"name": "ours", "weight": 2, "max_live_requests": 2, "tokens": [
        {"token": "token-with-all-rights-0", "rights": ["generate", "read", "admin"]},
        {"token": "token-that-generates-00", "rights": ["generate"]},
        {"token": "token-that-only-reads-0", "rights": ["read"]}]},
    {"name": "others", "tokens": [{"token": "token-of-someone-else-0"}]}]})";

class ServerCredentialsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFileOrDie(tokens_path_, kTable);
    WriteCertificate(authority_.Issue("server"));
    WriteFileOrDie(client_authority_path_, authority_.certificate());
  }

  void WriteCertificate(const TestAuthority::Issued& issued) {
    WriteFileOrDie(paths_.certificate, issued.certificate);
    WriteFileOrDie(paths_.key, issued.key);
  }

  Credentials Tokens() const {
    Credentials credentials;
    credentials.tokens = *OpenTokens(tokens_path_, [](const std::string&) {});
    return credentials;
  }

  Credentials Tls(Credentials credentials = {}) const {
    TlsPaths paths = paths_;
    if (credentials.has_client_certificates) paths.authority = client_authority_path_;
    credentials.tls = *OpenTls(paths, [](const std::string&) {});
    return credentials;
  }

  void Serve(const Credentials& credentials, const ConnectionLimits& limits = {}) {
    auto server = Server::Start(
        service_, {.port = 0, .credentials = credentials, .log = log_, .limits = limits});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  ConnectOptions Options(std::optional<std::string> token = std::nullopt) const {
    ConnectOptions options{server_->address(), std::move(token)};
    if (is_tls_) options.tls = ClientTls{authority_.certificate()};
    return options;
  }

  struct Answer {
    grpc::Status status;
    std::string bytes;
  };

  // One message to any method, as bytes, and its first answer.
  static Answer Call(const ConnectOptions& options, const std::string& method,
                     const std::string& bytes = "") {
    grpc::GenericStub stub(OpenChannel(options));
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(30)));
    std::promise<grpc::Status> done;
    stub.UnaryCall(&context, method, {}, &request, &response,
                   [&done](grpc::Status status) { done.set_value(std::move(status)); });
    Answer answer{done.get_future().get(), ""};
    grpc::Slice whole;
    if (answer.status.ok() && response.DumpToSingleSlice(&whole).ok()) {
      answer.bytes.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
    }
    return answer;
  }

  static grpc::StatusCode CodeOf(const ConnectOptions& options, const std::string& method) {
    return Call(options, method).status.error_code();
  }

  // Every method of every service that the server has, as it says itself.
  std::vector<std::string> AllMethods() const {
    const auto* pool = google::protobuf::DescriptorPool::generated_pool();
    google::protobuf::DynamicMessageFactory factory;
    const auto make = [&](const char* name) {
      const auto* type = pool->FindMessageTypeByName(name);
      return std::unique_ptr<google::protobuf::Message>(factory.GetPrototype(type)->New());
    };
    const auto request = make("grpc.reflection.v1alpha.ServerReflectionRequest");
    request->GetReflection()->SetString(
        request.get(), request->GetDescriptor()->FindFieldByName("list_services"), "");
    const Answer answer =
        Call(Options(kAll), std::string(kReflection), request->SerializeAsString());
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    const auto response = make("grpc.reflection.v1alpha.ServerReflectionResponse");
    EXPECT_TRUE(response->ParseFromString(answer.bytes));
    const auto* list_field = response->GetDescriptor()->FindFieldByName("list_services_response");
    const auto& list = response->GetReflection()->GetMessage(*response, list_field);
    const auto* service_field = list.GetDescriptor()->FindFieldByName("service");
    std::vector<std::string> methods;
    for (int i = 0; i < list.GetReflection()->FieldSize(list, service_field); ++i) {
      const auto& service = list.GetReflection()->GetRepeatedMessage(list, service_field, i);
      const std::string name = service.GetReflection()->GetString(
          service, service.GetDescriptor()->FindFieldByName("name"));
      const auto* descriptor = pool->FindServiceByName(name);
      EXPECT_NE(descriptor, nullptr) << name;
      for (int k = 0; descriptor != nullptr && k < descriptor->method_count(); ++k) {
        methods.push_back(absl::StrCat("/", name, "/", descriptor->method(k)->name()));
      }
    }
    return methods;
  }

  static constexpr std::string_view kReflection =
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  static constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";
  static constexpr char kStats[] = "/lowkey.v1.Admin/Stats";

  const TempDirectory directory_;
  const std::string tokens_path_ = directory_.File("tokens.json");
  const std::string client_authority_path_ = directory_.File("ca.pem");
  const TlsPaths paths_ = {directory_.File("cert.pem"), directory_.File("key.pem")};
  const TestAuthority authority_{"test"};
  bool is_tls_ = false;
  RequestLog* log_ = nullptr;
  Metrics metrics_{"tales"};
  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}, {}, &metrics_}};
  std::unique_ptr<Server> server_;
};

// In clear on the loopback, and over TLS.
class EveryMethodTest : public ServerCredentialsTest, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    ServerCredentialsTest::SetUp();
    is_tls_ = GetParam();
    Serve(is_tls_ ? Tls(Tokens()) : Tokens());
  }
};

INSTANTIATE_TEST_SUITE_P(Port, EveryMethodTest, ::testing::Bool());

TEST_P(EveryMethodTest, RefusesCallersWithoutAKnownToken) {
  const std::vector<std::string> methods = AllMethods();
  EXPECT_GE(methods.size(), 11u);
  for (const std::string& method : methods) {
    const bool is_open = method.starts_with("/grpc.health.v1.") ||
                         method == "/inference.GRPCInferenceService/ServerLive" ||
                         method == "/inference.GRPCInferenceService/ServerReady";
    for (const ConnectOptions& options : {Options(), Options(kWrong)}) {
      if (method == "/grpc.health.v1.Health/Watch") continue;  // it would never end
      EXPECT_EQ(CodeOf(options, method),
                is_open ? grpc::StatusCode::OK : grpc::StatusCode::UNAUTHENTICATED)
          << method;
    }
  }
}

TEST_P(EveryMethodTest, RefusesTokensThatLackTheRight) {
  for (const std::string& method : AllMethods()) {
    const std::optional<Right> right = RightFor(method);
    if (!right.has_value()) continue;
    const std::string token = *right == Right::kGenerate ? kRead : kGenerate;
    const Answer answer = Call(Options(token), method);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << method;
    EXPECT_THAT(answer.status.error_message(),
                HasSubstr(absl::StrCat("lacks the right \"", std::string(NameOf(*right)))));
    if (method == "/lowkey.v1.Admin/Drain") continue;
    const grpc::StatusCode code = CodeOf(Options(kAll), method);
    EXPECT_NE(code, grpc::StatusCode::PERMISSION_DENIED) << method;
    EXPECT_NE(code, grpc::StatusCode::UNAUTHENTICATED) << method;
  }
  EXPECT_FALSE(server_->is_draining());
}

TEST_P(EveryMethodTest, MethodsThatDoNotExistLookTheSame) {
  const std::string messages[] = {
      Call(Options(), kStats).status.error_message(),
      Call(Options(), "/lowkey.v1.Admin/Shutdown").status.error_message(),
      Call(Options(), "/nobody/knows").status.error_message()};
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  EXPECT_EQ(CodeOf(Options(), "/nobody/knows"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(CodeOf(Options(kGenerate), "/nobody/knows"), grpc::StatusCode::PERMISSION_DENIED);
}

TEST_P(EveryMethodTest, RefusalsAreCounted) {
  CodeOf(Options(), kStats);
  CodeOf(Options(kGenerate), kStats);
  EXPECT_THAT(metrics_.Text(), HasSubstr("code=\"UNAUTHENTICATED\"} 1\n"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("code=\"PERMISSION_DENIED\"} 1\n"));
}

TEST_P(EveryMethodTest, AdminsTokenDrains) {
  EXPECT_EQ(CodeOf(Options(kAll), "/lowkey.v1.Admin/Drain"), grpc::StatusCode::OK);
  EXPECT_TRUE(server_->is_draining());
}

TEST_F(ServerCredentialsTest, EveryMethodHasARightOfItsOwn) {
  Serve(Tokens());
  std::vector<std::string> admins;
  for (const std::string& method : AllMethods()) {
    if (RightFor(method) != Right::kAdmin) continue;
    // What the inference service does not offer needs no right of its own.
    if (method.starts_with("/inference.") &&
        CodeOf(Options(kAll), method) == grpc::StatusCode::UNIMPLEMENTED) {
      continue;
    }
    admins.push_back(method);
  }
  EXPECT_THAT(admins, UnorderedElementsAre("/lowkey.v1.Admin/Drain"));
}

TEST_F(ServerCredentialsTest, StrangeHeadersAreRefused) {
  Serve(Tokens());
  const auto stub = v1::Admin::NewStub(OpenChannel(Options()));
  const auto code = [&](const std::vector<std::string>& headers) {
    grpc::ClientContext context;
    for (const std::string& header : headers) context.AddMetadata("authorization", header);
    v1::StatsResponse response;
    return stub->Stats(&context, {}, &response).error_code();
  };
  const std::string good = absl::StrCat("Bearer ", kAll);
  EXPECT_EQ(code({good}), grpc::StatusCode::OK);
  EXPECT_EQ(code({absl::StrCat("bearer ", kAll)}), grpc::StatusCode::OK);
  for (const std::vector<std::string>& headers :
       std::vector<std::vector<std::string>>{{good, good},
                                             {good, absl::StrCat("Bearer ", kOther)},
                                             {kAll},
                                             {"Bearer"},
                                             {absl::StrCat("Bearer  ", kAll)},
                                             {absl::StrCat("Bearer ", kAll, " x")},
                                             {absl::StrCat("Basic ", kAll)},
                                             {absl::StrCat("Bearer ", std::string(4000, 'a'))}}) {
    EXPECT_EQ(code(headers), grpc::StatusCode::UNAUTHENTICATED) << headers[0].substr(0, 50);
  }
  // A value that ends with a blank is malformed (RFC 9113, section 8.2.1): the stream is reset.
  EXPECT_EQ(code({"Bearer "}), grpc::StatusCode::INTERNAL);
}

TEST_F(ServerCredentialsTest, RevokedTokenIsRefusedAtOnce) {
  Serve(Tokens());
  const auto stub = v1::Admin::NewStub(OpenChannel(Options(kOther)));
  const auto code = [&] {
    grpc::ClientContext context;
    v1::StatsResponse response;
    return stub->Stats(&context, {}, &response).error_code();
  };
  EXPECT_EQ(code(), grpc::StatusCode::OK);
  WriteFileOrDie(tokens_path_, R"({"tenants": [{"name": "ours", "tokens": [)"
                               R"({"token": "token-with-all-rights-0"}]}]})");
  EXPECT_EQ(code(), grpc::StatusCode::UNAUTHENTICATED) << "on the same connection";
  EXPECT_EQ(CodeOf(Options(kAll), kStats), grpc::StatusCode::OK);
  WriteFileOrDie(tokens_path_, "not a table");
  EXPECT_EQ(CodeOf(Options(kAll), kStats), grpc::StatusCode::OK) << "what was good stays";
  EXPECT_EQ(code(), grpc::StatusCode::UNAUTHENTICATED);
}

// Holds a stream open until it goes out of scope.
class OpenStream {
 public:
  OpenStream(const ConnectOptions& options, const std::string& request_id)
      : stub_(v1::Generation::NewStub(OpenChannel(options))) {
    v1::GenerateRequest request;
    request.set_text("Once");
    request.set_request_id(request_id);
    request.set_priority(7);
    reader_ = stub_->GenerateStream(&context_, request);
  }
  ~OpenStream() {
    context_.TryCancel();
    v1::GenerateEvent event;
    while (reader_->Read(&event)) {
    }
    reader_->Finish();
  }

 private:
  grpc::ClientContext context_;
  const std::unique_ptr<v1::Generation::Stub> stub_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader_;
};

TEST_F(ServerCredentialsTest, TenantsDoNotSeeEachOthersIds) {
  Serve(Tokens());
  const OpenStream ours(Options(kGenerate), "mine");
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const OpenStream theirs(Options(kOther), "mine");
  ASSERT_TRUE(engine_.WaitForRunning(2)) << "the id is another tenant's";
  v1::GenerateRequest request;
  request.set_text("Once");
  request.set_request_id("mine");
  EXPECT_EQ(Call(Options(kAll), "/lowkey.v1.Generation/Generate", request.SerializeAsString())
                .status.error_code(),
            grpc::StatusCode::ALREADY_EXISTS)
      << "the same tenant by another token";
  const std::vector<RequestId> ids = engine_.ids();
  EXPECT_EQ(engine_.request(ids[0]).tenant, "ours");
  EXPECT_EQ(engine_.request(ids[0]).tenant_weight, 2);
  EXPECT_EQ(engine_.request(ids[0]).priority, 7);
  EXPECT_EQ(engine_.request(ids[1]).tenant, "others");
  EXPECT_EQ(engine_.request(ids[1]).tenant_weight, 1);
}

TEST_F(ServerCredentialsTest, QuotaIsRefusedWithTheTimeToTryAgain) {
  Serve(Tokens());
  const OpenStream first(Options(kGenerate), ""), second(Options(kAll), "");
  ASSERT_TRUE(engine_.WaitForRunning(2));
  Client client(Options(kGenerate));
  GenerationRequest request;
  request.input = std::string("Once");
  const absl::Status status = client.GenerateJson(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 live requests of tenant ours"));
  EXPECT_EQ(RetryAfterOf(status), absl::Seconds(1));
  const OpenStream others(Options(kOther), "");
  EXPECT_TRUE(engine_.WaitForRunning(3)) << "another tenant's quota is its own";
}

TEST_F(ServerCredentialsTest, LogNamesTenantsAndNeverTokens) {
  RequestLogText log;
  log_ = log.log();
  Serve(Tokens());
  {
    const OpenStream stream(Options(kGenerate), "");
    ASSERT_TRUE(engine_.WaitForRunning(1));
  }
  CodeOf(Options(kWrong), kStats);
  CodeOf(Options(kAll), "/lowkey.v1.Models/ListModels");
  CodeOf(Options(kGenerate), kHealthCheck);
  CodeOf(Options(kGenerate), absl::StrCat("/x/", std::string(3000, 'y')));
  server_.reset();
  const std::string text = log.Text();
  EXPECT_THAT(text, HasSubstr("\"method\":\"GenerateStream\",\"tenant\":\"ours\""));
  EXPECT_THAT(text, HasSubstr("\"method\":\"/lowkey.v1.Admin/Stats\",\"status\":\"UNAUTH"));
  EXPECT_THAT(text, HasSubstr("\"tenant\":\"ours\",\"status\":\"PERMISSION_DENIED\""));
  EXPECT_THAT(text, HasSubstr("\"method\":\"/lowkey.v1.Models/ListModels\",\"tenant\":\"ours\","
                              "\"status\":\"OK\""));
  EXPECT_THAT(text, Not(HasSubstr("Health")));
  EXPECT_LT(text.size(), 2000u) << "a caller's own words are cut";
  for (const char* token : {kAll, kGenerate, kWrong}) EXPECT_THAT(text, Not(HasSubstr(token)));
}

TEST_F(ServerCredentialsTest, TlsClientsTrustTheAuthorityThatTheyName) {
  Serve(Tls());
  is_tls_ = true;
  EXPECT_EQ(CodeOf(Options(), kStats), grpc::StatusCode::OK);
  ConnectOptions stranger = Options();
  stranger.tls->authority = TestAuthority("another").certificate();
  Client client(stranger);
  const absl::Status status = client.CheckHealth("", absl::Now() + absl::Seconds(30));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--tls-ca"));
}

TEST_F(ServerCredentialsTest, ClearTextClientOfATlsServerIsTold) {
  Serve(Tls());
  Client client(Options());
  const absl::Status status = client.CheckHealth("", absl::Now() + absl::Seconds(30));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--tls-ca"));
}

TEST_F(ServerCredentialsTest, ClientsWithoutACertificateAreRefusedWhereTheyNeedOne) {
  Credentials credentials;
  credentials.has_client_certificates = true;
  Serve(Tls(credentials));
  is_tls_ = true;
  const auto with = [&](const TestAuthority& authority) {
    const TestAuthority::Issued issued = authority.Issue("client");
    ConnectOptions options = Options();
    options.tls->own = TlsFiles{issued.certificate, issued.key, std::nullopt};
    return options;
  };
  EXPECT_EQ(CodeOf(with(authority_), kStats), grpc::StatusCode::OK);
  for (const ConnectOptions& options : {Options(), with(TestAuthority("another"))}) {
    EXPECT_EQ(CodeOf(options, kStats), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(CodeOf(options, kHealthCheck), grpc::StatusCode::UNAVAILABLE);
  }
}

TEST_F(ServerCredentialsTest, StalledHandshakesDelayOthersAndRefuseNobody) {
  ConnectionLimits limits;
  limits.max_handshakes = 2;
  limits.handshake_timeout = absl::Hours(1);
  limits.crowded_handshake_timeout = absl::Milliseconds(500);
  Serve(Tls(), limits);
  is_tls_ = true;
  std::vector<std::unique_ptr<RawConnection>> stalled;
  for (int i = 0; i < 5; ++i) {
    stalled.push_back(std::make_unique<RawConnection>(server_->port()));
    stalled.back()->Send("\x16\x03\x01");
  }
  EXPECT_EQ(CodeOf(Options(), kStats), grpc::StatusCode::OK);
  EXPECT_THAT(metrics_.Text(), HasSubstr("reason=\"handshake_timeout\"} 4\n"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("reason=\"connections\"} 0\n"));
}

TEST_F(ServerCredentialsTest, SilentConnectionsKeepNobodyFromAHandshake) {
  ConnectionLimits limits;
  limits.max_handshakes = 1;
  limits.handshake_timeout = absl::Hours(1);
  Serve(Tls(), limits);
  is_tls_ = true;
  std::vector<std::unique_ptr<RawConnection>> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(std::make_unique<RawConnection>(server_->port()));
  EXPECT_EQ(CodeOf(Options(), kStats), grpc::StatusCode::OK);
}

TEST_F(ServerCredentialsTest, ReplacedCertificateIsShownToTheNextConnection) {
  Serve(Tls());
  is_tls_ = true;
  const auto old = v1::Admin::NewStub(OpenChannel(Options()));
  const auto calls_on_the_old_one = [&] {
    grpc::ClientContext context;
    v1::StatsResponse response;
    return old->Stats(&context, {}, &response).ok();
  };
  EXPECT_TRUE(calls_on_the_old_one());
  // The authority is one that the first client does not trust, so that the difference shows.
  const TestAuthority renewed("renewed");
  const TestAuthority::Issued issued = renewed.Issue("server");
  WriteFileOrDie(paths_.certificate, issued.certificate);
  EXPECT_EQ(CodeOf(Options(), kStats), grpc::StatusCode::OK) << "its key is not there yet";
  WriteFileOrDie(paths_.key, issued.key);
  EXPECT_EQ(CodeOf(Options(), kStats), grpc::StatusCode::UNAVAILABLE);
  ConnectOptions options = Options();
  options.tls->authority = renewed.certificate();
  EXPECT_EQ(CodeOf(options, kStats), grpc::StatusCode::OK);
  EXPECT_TRUE(calls_on_the_old_one()) << "connections that are open stay";
  WriteFileOrDie(paths_.key, "not a key");
  EXPECT_EQ(CodeOf(options, kStats), grpc::StatusCode::OK) << "what was good stays";
}

TEST_F(ServerCredentialsTest, OtherAddressesNeedTlsWithTokensOrClientCertificates) {
  const auto code = [](const Credentials& credentials) {
    return Server::CheckOptions({.host = "0.0.0.0", .port = 0, .credentials = credentials}).code();
  };
  EXPECT_EQ(code({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Tokens()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Tls()), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Tls(Tokens())), absl::StatusCode::kOk);
  Credentials mutual;
  mutual.has_client_certificates = true;
  EXPECT_EQ(code(Tls(mutual)), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace lowkey
