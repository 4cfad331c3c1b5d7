#include "tests/server/api/openai/openai_testing.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <future>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/server/front/http_get.h"

namespace lowkey {
namespace {

std::string Unchunked(std::string_view body) {
  std::string text;
  while (!body.empty()) {
    const size_t n = std::strtoul(std::string(body.substr(0, 16)).c_str(), nullptr, 16);
    const size_t begin = body.find("\r\n");
    if (n == 0 || begin == std::string_view::npos) break;
    text += body.substr(begin + 2, n);
    body.remove_prefix(std::min(body.size(), begin + 2 + n + 2));
  }
  return text;
}

}  // namespace

nlohmann::json ApiAnswer::Json() const { return nlohmann::json::parse(body, nullptr, false); }

nlohmann::json ApiAnswer::Error() const {
  const nlohmann::json json = Json();
  return json.is_object() && json.contains("error") ? json["error"] : nlohmann::json::object();
}

std::vector<std::string> ApiAnswer::Events() const {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

ApiAnswer ParseAnswer(const std::string& bytes) {
  ApiAnswer answer;
  const size_t end = bytes.find("\r\n\r\n");
  if (bytes.rfind("HTTP/1.1 ", 0) != 0 || end == std::string::npos) return answer;
  answer.code = std::atoi(bytes.c_str() + 9);
  for (size_t at = bytes.find("\r\n") + 2; at < end;) {
    const size_t line_end = bytes.find("\r\n", at);
    const size_t colon = bytes.find(": ", at);
    std::string name = bytes.substr(at, colon - at);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    answer.fields[name] = bytes.substr(colon + 2, line_end - colon - 2);
    at = line_end + 2;
  }
  const std::string body = bytes.substr(end + 4);
  answer.body = answer.fields.count("transfer-encoding") > 0 ? Unchunked(body) : body;
  return answer;
}

std::string RequestHead(const std::string& method, const std::string& path,
                        const std::string& fields, size_t n_body_bytes) {
  std::string head = absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\n",
                                  "Connection: close\r\n", fields);
  if (method == "POST") {
    if (fields.find("Content-Type") == std::string::npos) {
      head += "Content-Type: application/json\r\n";
    }
    absl::StrAppend(&head, "Content-Length: ", n_body_bytes, "\r\n");
  }
  return head + "\r\n";
}

void OpenAiTest::Serve(const ServerOptions& options) {
  auto server = Server::Start(service_, options);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

void OpenAiTest::ServeTemplate(const std::string& chat_template, OpenAiOptions openai) {
  server_.reset();
  templated_ = std::make_unique<TextService>(
      engine_, TestTokenizer(),
      TextService::Options{"tales", {}, ChatTemplates(chat_template), &metrics_});
  ServerOptions options = {.port = 0};
  options.openai = std::move(openai);
  auto server = Server::Start(*templated_, options);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
}

ApiAnswer OpenAiTest::Send(const std::string& method, const std::string& path,
                           const std::string& body, const std::string& fields) {
  RawConnection connection(server_->port());
  connection.Send(RequestHead(method, path, fields, body.size()) + body);
  return ParseAnswer(connection.ReadToEnd());
}

ApiAnswer OpenAiTest::Generate(const std::string& path, const nlohmann::json& body,
                               const std::string& text, size_t n, FinishReason reason) {
  auto answer = std::async(std::launch::async, [&] { return Send("POST", path, body.dump()); });
  EXPECT_TRUE(engine_.WaitForRunning(n));
  for (const RequestId id : engine_.ids()) Play(id, text, reason);
  return answer.get();
}

std::string OpenAiTest::PromptOf(const std::string& path, const nlohmann::json& body) {
  auto answer = std::async(std::launch::async, [&] { return Send("POST", path, body.dump()); });
  EXPECT_TRUE(engine_.WaitForRunning(1));
  if (engine_.ids().empty()) return answer.get().body;
  const EngineRequest request = engine_.request(engine_.ids()[0]);
  n_new_tokens_ = request.max_new_tokens;
  Play(engine_.ids()[0], "x");
  EXPECT_EQ(answer.get().code, 200);
  return TestTokenizer().Decode(request.prompt).value();
}

void OpenAiTest::Play(RequestId id, const std::string& text, FinishReason reason) {
  const EngineRequest request = engine_.request(id);
  for (const int32_t piece : BytePieces(text)) {
    for (int32_t choice = 0; choice < request.n; ++choice) {
      SampledToken token;
      token.token = piece;
      if (request.sampling.logprobs.has_value()) {
        token.logprob = -0.25f;
        for (int32_t i = 0; i < *request.sampling.logprobs; ++i) {
          token.top_logprobs.push_back({piece + i, -0.25f - static_cast<float>(i)});
        }
      }
      if (engine_.Emit(id, token, choice) == SinkAnswer::kStop) {
        return engine_.Finish(id, FinishReason::kStoppedBySink);
      }
    }
  }
  engine_.Finish(id, reason);
}

}  // namespace lowkey
