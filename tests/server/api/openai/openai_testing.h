#ifndef LOWKEY_TESTS_SERVER_API_OPENAI_OPENAI_TESTING_H_
#define LOWKEY_TESTS_SERVER_API_OPENAI_OPENAI_TESTING_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {

// An answer over HTTP/1.1.
struct ApiAnswer {
  int code = 0;
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // without the framing of chunks

  nlohmann::json Json() const;
  // The `error` object.
  nlohmann::json Error() const;
  // The data of a stream's events, in order.
  std::vector<std::string> Events() const;
};

ApiAnswer ParseAnswer(const std::string& bytes);
std::string RequestHead(const std::string& method, const std::string& path,
                        const std::string& fields, size_t n_body_bytes);

// A real server over an engine that the test plays.
class OpenAiTest : public ::testing::Test {
 protected:
  static constexpr char kTemplate[] =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if tools %}[{{ tools | tojson }}]{% endif %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";

  void SetUp() override { Serve({.port = 0}); }

  void Serve(const ServerOptions& options);

  // Serves the same engine with another chat template.
  void ServeTemplate(const std::string& chat_template, OpenAiOptions openai = {});

  ApiAnswer Send(const std::string& method, const std::string& path, const std::string& body = "",
                 const std::string& fields = "");
  ApiAnswer Get(const std::string& path) { return Send("GET", path); }

  // Posts, and has the engine answer each of `n` requests with the text.
  ApiAnswer Generate(const std::string& path, const nlohmann::json& body, const std::string& text,
                     size_t n = 1, FinishReason reason = FinishReason::kStopToken);

  // Posts; returns the prompt that the engine got, and sets n_new_tokens_.
  std::string PromptOf(const std::string& path, const nlohmann::json& body);

  void Play(RequestId id, const std::string& text, FinishReason reason = FinishReason::kStopToken);

  FakeEngine engine_;
  Metrics metrics_{"tales"};
  TextService service_{
      engine_, TestTokenizer(), {"tales", {}, ChatTemplates(kTemplate), &metrics_}};
  std::unique_ptr<TextService> templated_;
  std::unique_ptr<Server> server_;
  int32_t n_new_tokens_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_API_OPENAI_OPENAI_TESTING_H_
