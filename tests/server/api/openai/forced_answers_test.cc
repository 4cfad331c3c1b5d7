// The server, the engine and the demo model together: forced answers that end by themselves are
// valid calls in every tool format.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/loader/checkpoint.h"
#include "tests/server/api/openai/openai_testing.h"
#include "tests/server/front/http_get.h"
#include "tests/server/grammar/schema/validator.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using nlohmann::json;

// What templates say that teach the formats, and one that teaches none.
constexpr const char* kTemplates[] = {"{# <tool_call> #}", "{# [TOOL_CALLS] #}",
                                      "{# [TOOL_CALLS] [ARGS] #}",
                                      "{# <|python_tag|> \"parameters\" #}", ""};

const json& Tools() {
  static const json* const tools = new json(json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string", "maxLength": 10}, "unit": {"enum": ["C", "F"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "unit"],
      "additionalProperties": false}}},
    {"type": "function", "function": {"name": "list_all", "parameters": {"type": "object",
      "properties": {"of": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/kind"}}},
      "required": ["of"], "additionalProperties": false,
      "$defs": {"kind": {"enum": ["cat", "dog"]}}}}},
    {"type": "function", "function": {"name": "stop_now"}}])"));
  return *tools;
}

class ForcedAnswersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.n_threads = 2;
    options.cache_bytes = 64 << 20;
    engine_ = CreateEngine(OpenCheckpoint(SourcePath("models/tales")).value(), options, nullptr)
                  .value()
                  .release();
  }
  static void TearDownTestSuite() { delete std::exchange(engine_, nullptr); }

  void Serve(const std::string& format, const std::string& end = "") {
    server_.reset();
    service_ = std::make_unique<TextService>(
        *engine_, TestTokenizer(),
        TextService::Options{"tales",
                             {},
                             ChatTemplates(format +
                                           "{% for m in messages %}{{ m.content }}\n"
                                           "{% endfor %}" +
                                           end)});
    auto server = Server::Start(*service_, {.port = 0});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  ApiAnswer Post(const json& body) {
    const std::string text = body.dump();
    RawConnection connection(server_->port());
    connection.Send(RequestHead("POST", "/v1/chat/completions", "", text.size()) + text);
    return ParseAnswer(connection.ReadToEnd());
  }

  static json Body(const json& choice, int seed) {
    return {{"model", "tales"},
            {"messages", json::array({{{"role", "user"}, {"content", "Once upon a time"}}})},
            {"tools", Tools()},
            {"tool_choice", choice},
            {"max_tokens", 200},
            {"seed", seed},
            {"n", 2}};
  }

  static void CheckCalls(const json& message) {
    EXPECT_TRUE(message["content"].is_null()) << message;
    EXPECT_GE(message["tool_calls"].size(), 1u) << message;
    for (const json& call : message["tool_calls"]) {
      const auto tool = std::find_if(Tools().begin(), Tools().end(), [&call](const json& t) {
        return t["function"]["name"] == call["function"]["name"];
      });
      ASSERT_NE(tool, Tools().end()) << call;
      const json arguments =
          json::parse(call["function"]["arguments"].get<std::string>(), nullptr, false);
      ASSERT_TRUE(arguments.is_object()) << call;
      const json& function = (*tool)["function"];
      if (!function.contains("parameters")) {
        EXPECT_TRUE(arguments.empty()) << call;
        continue;
      }
      EXPECT_EQ(grammar::WhyInvalid(function["parameters"], function["parameters"], arguments), "")
          << call;
    }
  }

  // Asks for two answers; returns how many ended by themselves.
  int Check(const json& body, const std::string& end) {
    const ApiAnswer answer = Post(body);
    EXPECT_EQ(answer.code, 200) << answer.body;
    if (answer.code != 200) return 0;
    int n_complete = 0;
    const json whole = answer.Json();
    for (const json& choice : whole["choices"]) {
      if (choice["finish_reason"] == "length") continue;
      ++n_complete;
      EXPECT_EQ(choice["finish_reason"], end) << choice;
      CheckCalls(choice["message"]);
      if (end == "stop") {
        EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
      }
    }
    return n_complete;
  }

  static Engine* engine_;
  std::unique_ptr<TextService> service_;
  std::unique_ptr<Server> server_;
};

Engine* ForcedAnswersTest::engine_ = nullptr;

TEST_F(ForcedAnswersTest, CompleteAnswersAreValidCalls) {
  for (const char* format : kTemplates) {
    SCOPED_TRACE(format);
    Serve(format);
    json single = Body("required", 0);
    single["parallel_tool_calls"] = false;
    int n_complete = Check(single, "tool_calls");
    for (const json& tool : Tools()) {
      const json named = {{"type", "function"}, {"function", {{"name", tool["function"]["name"]}}}};
      n_complete += Check(Body(named, 0), "stop");
    }
    EXPECT_GT(n_complete, 2);
  }
}

TEST_F(ForcedAnswersTest, TheStreamIsTheWhole) {
  for (const char* format : kTemplates) {
    SCOPED_TRACE(format);
    Serve(format);
    json body = Body("required", 5);
    body["max_tokens"] = 60;
    const json whole = Post(body).Json();
    body["stream"] = true;
    std::map<std::pair<int, int>, std::string> calls;
    std::map<int, json> ends;
    for (const std::string& event : Post(body).Events()) {
      const json chunk = json::parse(event, nullptr, false);
      if (!chunk.is_object()) continue;
      for (const json& choice : chunk["choices"]) {
        const int index = choice["index"];
        if (!choice["finish_reason"].is_null()) ends[index] = choice["finish_reason"];
        for (const json& call : choice["delta"].value("tool_calls", json::array())) {
          std::string& text = calls[{index, call["index"].get<int>()}];
          text += call["function"].value("name", "");
          text += call["function"]["arguments"].get<std::string>();
        }
      }
    }
    for (const json& choice : whole["choices"]) {
      EXPECT_EQ(ends[choice["index"]], choice["finish_reason"]);
      const json& message = choice["message"];
      for (size_t i = 0; message.contains("tool_calls") && i < message["tool_calls"].size(); ++i) {
        const json& function = message["tool_calls"][i]["function"];
        EXPECT_EQ(calls[std::make_pair(choice["index"].get<int>(), static_cast<int>(i))],
                  function["name"].get<std::string>() + function["arguments"].get<std::string>());
      }
    }
  }
}

TEST_F(ForcedAnswersTest, ReasoningComesFirst) {
  Serve("{# <tool_call> #}", "<think>");
  // The demo model never closes its reasoning by itself.
  json body = Body("required", 1);
  body["n"] = 1;
  body["max_tokens"] = 20;
  const json choice = Post(body).Json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_FALSE(choice["message"]["reasoning_content"].get<std::string>().empty());
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

}  // namespace
}  // namespace lowkey
