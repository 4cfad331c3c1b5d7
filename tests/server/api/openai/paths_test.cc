// The HTTP API's other paths, its errors, and what browsers may do.
#include <gmock/gmock.h>

#include <future>

#include "tests/server/api/openai/openai_testing.h"
#include "tests/server/front/http_get.h"
#include "tests/server/request_log_text.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class PathsTest : public OpenAiTest {};

TEST_F(PathsTest, ModelsListMechanisms) {
  const json list = Get("/v1/models").Json();
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 4u);
  EXPECT_EQ(list["data"][0]["id"], "tales");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["max_model_len"], 2048);
  EXPECT_EQ(list["data"][0]["lowkey"]["mechanism"], "standard");
  EXPECT_EQ(list["data"][0]["lowkey"]["chat"], true);
  EXPECT_TRUE(list["data"][0]["lowkey"]["perplexity_ratio"].is_null());
  EXPECT_EQ(list["data"][2]["id"], "tales@atp");
  EXPECT_EQ(list["data"][2]["lowkey"]["perplexity_ratio"], 1.2);
  EXPECT_EQ(Get("/v1/models/tales%40atp").Json()["id"], "tales@atp");
  EXPECT_EQ(Get("/v1/models/tales").Json()["id"], "tales");
  const ApiAnswer none = Get("/v1/models/gpt");
  EXPECT_EQ(none.code, 404);
  EXPECT_EQ(none.Error()["code"], "model_not_found");
}

TEST_F(PathsTest, HeadHasNoBody) {
  const ApiAnswer answer = Send("HEAD", "/v1/models");
  EXPECT_EQ(answer.code, 200);
  EXPECT_EQ(answer.body, "");
}

TEST_F(PathsTest, TextsBecomeTokensAndBack) {
  const json tokens =
      Send("POST", "/tokenize", R"({"prompt": "Once upon", "return_token_strs": true})").Json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(tokens["token_strs"].size(), tokens["tokens"].size());
  EXPECT_EQ(tokens["tokens"][0], 1);
  EXPECT_EQ(tokens["max_model_len"], 2048);
  const json plain =
      Send("POST", "/tokenize", R"({"content": "Once upon", "with_pieces": true})").Json();
  EXPECT_NE(plain["tokens"][0]["id"], 1);
  EXPECT_TRUE(plain["tokens"][0]["piece"].is_string());
  const json text = Send("POST", "/detokenize", json{{"tokens", tokens["tokens"]}}.dump()).Json();
  EXPECT_EQ(text["prompt"], "Once upon");
  EXPECT_EQ(text["content"], "Once upon");
  const json chat =
      Send("POST", "/tokenize", R"({"messages": [{"role": "user", "content": "Hi"}]})").Json();
  EXPECT_GT(chat["count"], 4);
  EXPECT_EQ(Send("POST", "/tokenize", R"({"prompt": "a", "content": "b"})").code, 400);
  EXPECT_EQ(Send("POST", "/detokenize", R"({"tokens": [-1]})").code, 400);
  EXPECT_EQ(Get("/tokenizer_info").Json()["bos_token"], "<s>");
}

TEST_F(PathsTest, ScoresAsTheRpcDoes) {
  const std::string body =
      R"({"token_ids": [1, 300], "continuation_token_ids": [[301], [302]], "model": "tales"})";
  auto answer =
      std::async(std::launch::async, [&] { return Send("POST", "/lowkey/v1/score", body); });
  ASSERT_TRUE(engine_.WaitForRunning(2));
  float logprob = -1;
  for (const RequestId id : engine_.ids()) {
    const int32_t token = engine_.request(id).prompt.back();
    engine_.EmitPromptLogprobs(id, {{2, {token, logprob}, {{token, logprob}}}});
    engine_.Finish(id, FinishReason::kLength);
    logprob = -2;
  }
  const json scores = answer.get().Json();
  EXPECT_EQ(scores["scores"][0]["logprob"], -1);
  EXPECT_EQ(scores["scores"][1]["logprob"], -2);
  EXPECT_EQ(scores["scores"][0]["greedy"], true);
  EXPECT_EQ(scores["best"], 0);
  const ApiAnswer refused = Send("POST", "/lowkey/v1/score", R"({"tokens": 1})");
  EXPECT_EQ(refused.Error()["code"], "unknown_parameter");
}

TEST_F(PathsTest, ErrorsAreObjectsUnderV1) {
  const struct {
    const char* method;
    const char* path;
    const char* fields;
    int code;
    const char* error_code;
  } cases[] = {
      {"GET", "/v1/embeddings", "", 404, "unsupported_endpoint"},
      {"POST", "/v1/responses/resp_1/cancel", "", 404, "unsupported_endpoint"},
      {"GET", "/v1/nonsense", "", 404, "not_found"},
      {"GET", "/v1/completions", "", 405, "method_not_allowed"},
      {"DELETE", "/v1/models/tales", "", 405, "method_not_allowed"},
      {"POST", "/v1/completions", "Content-Type: text/plain\r\n", 415, "unsupported_media_type"},
  };
  for (const auto& test : cases) {
    const ApiAnswer answer = Send(test.method, test.path, "", test.fields);
    EXPECT_EQ(answer.code, test.code) << test.method << test.path << answer.body;
    EXPECT_EQ(answer.Error()["code"], test.error_code) << test.path << answer.body;
  }
  EXPECT_EQ(Send("GET", "/v1/completions").fields.at("allow"), "POST");
  EXPECT_EQ(Get("/version").Json().count("version"), 1u);
}

TEST_F(PathsTest, BodiesOverTheLimitAreRefused) {
  const std::string body(5 << 20, ' ');
  const ApiAnswer answer = Send("POST", "/v1/completions", body);
  EXPECT_EQ(answer.code, 413);
  EXPECT_EQ(answer.Error()["code"], "request_too_large");
}

TEST_F(PathsTest, HostileBodiesAreRefused) {
  const size_t n = size_t{4} << 20;
  std::string wide = "{\"prompt\":[", objects = wide;
  while (wide.size() + 8 < n) wide += "[],";
  while (objects.size() + 8 < n) objects += "{},";
  for (const std::string& body :
       {std::string(), std::string("null"), std::string("[]"), std::string("{"),
        std::string("{\"model\":\"tales\",\"model\":\"tales\"}"),
        std::string("{\"model\":\"\xff\"}"), std::string("{\"model\":\"\\ud800\"}"),
        std::string("{\"a\":1e999}"), std::string(n, '['), std::string(n, '9'), wide + "[]]}",
        objects + "{}]}"}) {
    const ApiAnswer answer = Send("POST", "/v1/completions", body);
    EXPECT_EQ(answer.code, 400) << body.substr(0, 40) << answer.body.substr(0, 200);
    EXPECT_TRUE(answer.Error()["message"].is_string()) << body.substr(0, 40);
  }
}

TEST_F(PathsTest, BodiesThatAreNotJsonAreRefusedWithThePlace) {
  const ApiAnswer answer = Send("POST", "/v1/completions", "{\"model\": \"tales\",\n\"prompt\": }");
  EXPECT_EQ(answer.Error()["param"], "body") << answer.body;
  EXPECT_THAT(answer.Error()["message"].get<std::string>(),
              HasSubstr("body: not JSON at line 2, column 11: while parsing value"));
}

TEST_F(PathsTest, BodiesMayComeByteByByte) {
  const std::string body = R"({"model": "tales", "prompt": "a", "max_tokens": -1})";
  const std::string bytes = RequestHead("POST", "/v1/completions", "", body.size()) + body;
  const size_t head_bytes = bytes.size() - body.size();
  for (size_t cut = head_bytes - 2; cut < bytes.size(); ++cut) {
    RawConnection connection(server_->port());
    connection.Send(bytes.substr(0, cut));
    connection.Send(bytes.substr(cut));
    EXPECT_EQ(ParseAnswer(connection.ReadToEnd()).Error()["param"], "max_tokens") << cut;
  }
  RawConnection connection(server_->port());
  for (const char c : bytes) connection.Send(std::string(1, c));
  EXPECT_EQ(ParseAnswer(connection.ReadToEnd()).Error()["param"], "max_tokens");
}

TEST_F(PathsTest, PagesOfOtherSitesAreRefusedUnlessNamed) {
  EXPECT_EQ(Send("GET", "/v1/models", "", "Origin: https://evil.example\r\n").Error()["code"],
            "origin_not_allowed");
  EXPECT_EQ(Send("GET", "/v1/models", "", "Origin: http://127.0.0.1\r\n").code, 200);
  EXPECT_EQ(Send("GET", "/health", "", "Origin: null\r\n").code, 403);
  server_.reset();
  ServerOptions options = {.port = 0};
  options.browsers.origins = {"https://app.example"};
  Serve(options);
  const std::string origin = "Origin: https://app.example\r\n";
  const ApiAnswer named = Send("GET", "/v1/models", "", origin);
  EXPECT_EQ(named.code, 200);
  EXPECT_EQ(named.fields.at("access-control-allow-origin"), "https://app.example");
  const ApiAnswer preflight =
      Send("OPTIONS", "/v1/completions", "",
           origin +
               "Access-Control-Request-Method: POST\r\n"
               "Access-Control-Request-Headers: authorization, x-stainless-os\r\n");
  EXPECT_EQ(preflight.code, 204);
  EXPECT_EQ(preflight.fields.at("access-control-allow-headers"), "authorization, x-stainless-os");
  EXPECT_EQ(Send("GET", "/v1/models", "", "Origin: https://evil.example\r\n").code, 403);
}

// A name that a stranger owns may lead to this machine.
TEST_F(PathsTest, UnknownNamesOfTheServerAreRefused) {
  const auto by = [this](const std::string& host) {
    RawConnection connection(server_->port());
    connection.Send("GET /v1/models HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n\r\n");
    return ParseAnswer(connection.ReadToEnd());
  };
  EXPECT_EQ(by("evil.example").Error()["code"], "host_not_allowed");
  for (const char* host : {"localhost", "LOCALHOST:50051", "127.0.0.1:1", "[::1]:50051"}) {
    EXPECT_EQ(by(host).code, 200) << host;
  }
  server_.reset();
  ServerOptions options = {.port = 0};
  options.browsers.hosts = {"box.lan"};
  Serve(options);
  EXPECT_EQ(by("box.lan:50051").code, 200);
  EXPECT_EQ(by("evil.example").code, 403);
}

// Proxies send the field, and the log tells of a request by it.
TEST_F(PathsTest, EveryAnswerAndItsLineInTheLogNameTheRequest) {
  RequestLogText log;
  server_.reset();
  Serve({.port = 0, .log = log.log()});
  const auto id_of = [](const ApiAnswer& answer) { return answer.fields.at("x-request-id"); };
  const std::string field = "X-Request-Id: job-7\r\n";
  const json body = {{"model", "tales"}, {"prompt", "a"}, {"max_tokens", 5}};
  auto answer = std::async(std::launch::async,
                           [&] { return Send("POST", "/v1/completions", body.dump(), field); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  Play(engine_.ids()[0], "x");
  const ApiAnswer generated = answer.get();
  EXPECT_EQ(id_of(generated), "job-7");
  EXPECT_THAT(generated.Json()["id"].get<std::string>(), MatchesRegex("cmpl-job-7-[0-9a-f]{8}"));
  std::vector<std::string> ids = {"job-7-", "job-7"};
  EXPECT_EQ(id_of(Send("POST", "/v1/completions", "{}", field)), "job-7");
  for (const ApiAnswer& refused :
       {Send("POST", "/v1/completions", "{}"), Send("POST", "/tokenize", "{}"), Get("/v1/nothing"),
        Send("DELETE", "/v1/models"), Send("GET", "/v1/models", "", "X-Request-Id: a b\r\n")}) {
    EXPECT_THAT(id_of(refused), MatchesRegex("[0-9a-f]{16}"));
    ids.push_back(id_of(refused));
  }
  ids.resize(4);  // a path that is unknown, or open to all, has no line
  server_.reset();
  const std::string text = log.Text();
  for (const std::string& id : ids) {
    EXPECT_THAT(text, HasSubstr("\"request_id\":\"" + id)) << text;
  }
}

}  // namespace
}  // namespace lowkey
