// The page and its figures as browsers see them, with and without tokens.
#include "server/api/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/front/call_guard.h"
#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/front/http_get.h"
#include "tests/server/testing.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTable[] = R"({"tenants": [{"name": "ours", "tokens": [
    {"token": "token-that-generates-00", "rights": ["generate"]},
    {"token": "token-that-only-reads-0", "rights": ["read"]}]}]})";
constexpr char kReads[] = "Authorization: Bearer token-that-only-reads-0\r\n";
constexpr char kGenerates[] = "Authorization: Bearer token-that-generates-00\r\n";
constexpr const char* kFigures[] = {"/lowkey/v1/model", "/lowkey/v1/crossover",
                                    "/lowkey/v1/cache?mechanism=atp", "/lowkey/v1/stats"};

class ServerPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    engine_.SetProfile({.name = "measured"});
    Serve({.port = 0});
  }

  void Serve(const ServerOptions& options) {
    auto server = Server::Start(service_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void ServeWithTokens() {
    WriteFileOrDie(directory_.File("tokens.json"), kTable);
    ServerOptions options = {.port = 0};
    options.credentials.tokens =
        *OpenTokens(directory_.File("tokens.json"), [](const std::string&) {});
    Serve(options);
  }

  HttpAnswer Get(const std::string& path, const std::string& fields = "",
                 const std::string& method = "GET") {
    return HttpGet(server_->port(), path, method, fields);
  }

  static std::string BodyOf(const HttpAnswer& answer) {
    return answer.text.substr(answer.text.find("\r\n\r\n") + 4);
  }
  static std::string FieldOf(const HttpAnswer& answer, const std::string& name) {
    const size_t begin = answer.text.find(absl::StrCat("\r\n", name, ": "));
    if (begin == std::string::npos) return "";
    const size_t value = begin + 4 + name.size();
    return answer.text.substr(value, answer.text.find("\r\n", value) - value);
  }

  const TempDirectory directory_;
  FakeEngine engine_;
  Metrics metrics_{"tales"};
  TextService service_{engine_, TestTokenizer(), {"tales", {}, {}, &metrics_}};
  std::unique_ptr<Server> server_;
};

// Computed here from the served bytes, as a browser does.
std::string HashOfElement(const std::string& page, const std::string& name) {
  const std::string begin = absl::StrCat("<", name, ">"), end = absl::StrCat("</", name, ">");
  const size_t first = page.find(begin) + begin.size();
  const std::string inside = page.substr(first, page.find(end, first) - first);
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(inside.data()), inside.size(), hash);
  return absl::StrCat(
      "'sha256-",
      absl::Base64Escape(std::string(reinterpret_cast<const char*>(hash), sizeof(hash))), "'");
}

TEST_F(ServerPageTest, PolicyAllowsThePagesOwnScriptAndStyleAlone) {
  const HttpAnswer answer = Get("/");
  ASSERT_EQ(answer.code, 200);
  const std::string page = BodyOf(answer);
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_EQ(FieldOf(answer, "content-security-policy"),
            absl::StrCat("default-src 'none'; script-src ", HashOfElement(page, "script"),
                         "; style-src ", HashOfElement(page, "style"),
                         "; connect-src 'self'; img-src data:; base-uri 'none'; form-action "
                         "'none'; frame-ancestors 'none'"));
  EXPECT_EQ(FieldOf(answer, "content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(FieldOf(answer, "x-content-type-options"), "nosniff");
  EXPECT_EQ(FieldOf(answer, "referrer-policy"), "no-referrer");
  EXPECT_EQ(FieldOf(answer, "Content-Length"), absl::StrCat(page.size()));
}

TEST_F(ServerPageTest, PageNeedsNothingFromElsewhere) {
  const std::string page(PageHtml());
  for (const char* word :
       {"src=", "<link rel=\"stylesheet", "@import", "url(", "innerHTML", "insertAdjacentHTML",
        "document.write", "eval(", " style=\"", "<script "}) {
    EXPECT_THAT(page, Not(HasSubstr(word))) << word;
  }
}

TEST_F(ServerPageTest, KnownPageIsNotSentAgain) {
  const std::string tag = FieldOf(Get("/"), "etag");
  ASSERT_GE(tag.size(), 10u);
  for (const std::string& known :
       {tag, absl::StrCat("W/", tag), absl::StrCat("\"other\", ", tag), std::string("*")}) {
    const HttpAnswer answer = Get("/", absl::StrCat("If-None-Match: ", known, "\r\n"));
    EXPECT_EQ(answer.code, 304) << known;
    EXPECT_EQ(BodyOf(answer), "");
    EXPECT_EQ(FieldOf(answer, "etag"), tag);
  }
  EXPECT_EQ(Get("/", "If-None-Match: \"other\"\r\n").code, 200);
}

TEST_F(ServerPageTest, HeadHasNoBodyAndOtherMethodsAreRefused) {
  const HttpAnswer head = Get("/", "", "HEAD");
  EXPECT_EQ(head.code, 200);
  EXPECT_EQ(BodyOf(head), "");
  EXPECT_EQ(FieldOf(head, "Content-Length"), absl::StrCat(PageHtml().size()));
  for (const char* path : {"/", "/lowkey/v1/stats"}) {
    const HttpAnswer answer = Get(path, "Content-Length: 0\r\n", "POST");
    EXPECT_EQ(answer.code, 405) << path;
    EXPECT_EQ(FieldOf(answer, "allow"), "GET, HEAD");
  }
}

TEST_F(ServerPageTest, FiguresAreJson) {
  for (const char* path : kFigures) {
    const HttpAnswer answer = Get(path);
    EXPECT_EQ(answer.code, 200) << path << answer.text;
    EXPECT_EQ(FieldOf(answer, "content-type"), "application/json");
    EXPECT_EQ(FieldOf(answer, "cache-control"), "no-store");
    EXPECT_TRUE(nlohmann::json::accept(BodyOf(answer))) << path;
    EXPECT_EQ(BodyOf(Get(path, "", "HEAD")), "");
  }
  EXPECT_EQ(Get("/lowkey/v1/").code, 404);
}

TEST_F(ServerPageTest, ErrorsAreObjects) {
  const HttpAnswer answer = Get("/lowkey/v1/cache?rank=%");
  EXPECT_EQ(answer.code, 400);
  const auto error = nlohmann::json::parse(BodyOf(answer))["error"];
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("percent encoding"));
  EXPECT_EQ(error["type"], "invalid_request_error");
}

TEST_F(ServerPageTest, ThePageNeedsNoTokenAndItsFiguresNeedTheRightToRead) {
  ServeWithTokens();
  EXPECT_EQ(Get("/").code, 200);
  EXPECT_EQ(Get("/", "Authorization: Bearer nobodys\r\n").code, 200);
  for (const char* path : kFigures) {
    const HttpAnswer stranger = Get(path);
    EXPECT_EQ(stranger.code, 401) << path;
    EXPECT_EQ(FieldOf(stranger, "www-authenticate"), "Bearer");
    EXPECT_EQ(Get(path, "Authorization: Bearer nobodys\r\n").code, 401) << path;
    EXPECT_EQ(Get(path, kGenerates).code, 403) << path;
    EXPECT_EQ(Get(path, kReads).code, 200) << path;
  }
}

TEST_F(ServerPageTest, ClientsMayComeAgainWhileRatesAreMeasured) {
  engine_.SetProfile({});
  Serve({.port = 0, .is_measuring = [] { return true; }});
  const HttpAnswer answer = Get("/lowkey/v1/crossover");
  EXPECT_EQ(answer.code, 503);
  EXPECT_EQ(FieldOf(answer, "retry-after"), "2");
  Serve({.port = 0});
  EXPECT_EQ(Get("/lowkey/v1/crossover").code, 404);
}

}  // namespace
}  // namespace lowkey
