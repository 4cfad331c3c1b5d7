// POST /v1/chat/completions over a real server.
#include <gmock/gmock.h>

#include <future>

#include "tests/server/api/openai/openai_testing.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/chat/completions";

class ChatTest : public OpenAiTest {
 protected:
  static json Body(json more = json::object()) {
    json body = {{"model", "tales"},
                 {"messages", json::array({{{"role", "user"}, {"content", "Hi"}}})}};
    body.update(more);
    return body;
  }
  ApiAnswer Refused(const json& more) { return Send("POST", kPath, Body(more).dump()); }

  std::string PromptOf(const json& body) { return OpenAiTest::PromptOf(kPath, body); }
};

TEST_F(ChatTest, WholeAnswerHasOpenAiForm) {
  const json body = Generate(kPath, Body({{"max_tokens", 8}}), "hello").Json();
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hello");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
}

TEST_F(ChatTest, RoleComesWithTheFirstTokenAndTheEndWithTheLast) {
  const ApiAnswer answer = Generate(kPath, Body({{"stream", true}, {"n", 2}}), "ab");
  std::map<int, std::string> texts;
  std::map<int, int> n_roles, n_ends;
  for (const std::string& event : answer.Events()) {
    const json chunk = json::parse(event, nullptr, false);
    if (!chunk.is_object()) continue;
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    for (const json& choice : chunk["choices"]) {
      const int index = choice["index"];
      n_roles[index] += choice["delta"].contains("role");
      EXPECT_EQ(choice["delta"].contains("role"), texts.count(index) == 0);
      texts[index] += choice["delta"]["content"].get<std::string>();
      n_ends[index] += !choice["finish_reason"].is_null();
    }
  }
  for (const int i : {0, 1}) {
    EXPECT_EQ(texts[i], "ab");
    EXPECT_EQ(n_roles[i], 1);
    EXPECT_EQ(n_ends[i], 1);
  }
}

TEST_F(ChatTest, MessagesAreWrittenByTheTemplate) {
  const json body =
      Body({{"messages",
             {{{"role", "developer"}, {"content", "be kind"}},
              {{"role", "user"},
               {"content", {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}}}},
              {{"role", "assistant"},
               {"content", "c"},
               {"refusal", nullptr},
               {"annotations", json::array()}},
              {{"role", "user"}, {"content", "d"}, {"name", "n"}}}}});
  EXPECT_EQ(PromptOf(body), "<system>be kind<user>a\nb<assistant>c<user>d<assistant>");
}

TEST_F(ChatTest, WhatAnAssistantThoughtReachesTheTemplate) {
  ServeTemplate(
      "{% for m in messages %}<{{ m.role }}>"
      "{% if m.reasoning_content is string %}({{ m.reasoning_content }}){% endif %}"
      "{{ m.content or '' }}{% endfor %}");
  for (const char* field : {"reasoning_content", "reasoning"}) {
    const json body = Body({{"messages",
                             {{{"role", "user"}, {"content", "a"}},
                              {{"role", "assistant"}, {"content", "b"}, {field, "why"}},
                              {{"role", "assistant"}, {"content", "c"}, {field, nullptr}},
                              {{"role", "assistant"}, {"content", nullptr}, {"refusal", "d"}}}}});
    EXPECT_EQ(PromptOf(body), "<user>a<assistant>(why)b<assistant>c<assistant>d") << field;
  }
}

TEST_F(ChatTest, AnswerMayFillTheContext) {
  PromptOf(Body());
  EXPECT_GT(n_new_tokens_, 1900);
  PromptOf(Body({{"max_completion_tokens", 5}}));
  EXPECT_EQ(n_new_tokens_, 5);
  PromptOf(Body({{"max_tokens", 6}}));
  EXPECT_EQ(n_new_tokens_, 6);
}

TEST_F(ChatTest, ToolsReachTheTemplateInTheirOrder) {
  const std::string tool =
      R"({"type": "function", "function": {"name": "f", "parameters": {"zebra": 1, "ant": 2}}})";
  const std::string body = R"({"model": "tales", "messages": [{"role": "user", "content": "Hi"}],)"
                           R"( "tools": [)" +
                           tool + "]}";
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const EngineRequest request = engine_.request(engine_.ids()[0]);
  EXPECT_THAT(TestTokenizer().Decode(request.prompt).value(),
              HasSubstr(R"("parameters": {"zebra": 1, "ant": 2})"));
  Play(engine_.ids()[0], "x");
  EXPECT_EQ(answer.get().code, 200);
  json none = json::parse(body);
  none["tool_choice"] = "none";
  EXPECT_EQ(PromptOf(none), "<user>Hi<assistant>");
}

TEST_F(ChatTest, LogprobsHaveBytes) {
  const json body = Body({{"logprobs", true}, {"top_logprobs", 1}});
  const json answer = Generate(kPath, body, "a").Json();
  const json& token = answer["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["token"], "a");
  EXPECT_EQ(token["logprob"], -0.25);
  EXPECT_EQ(token["bytes"], json({97}));
  EXPECT_EQ(token["top_logprobs"][0]["token"], "a");
}

TEST_F(ChatTest, RefusalsSayWhat) {
  const auto messages = [](json message) { return json{{"messages", json::array({message})}}; };
  const struct {
    json more;
    const char* code;
    const char* param;
  } refusals[] = {
      {{{"messages", json::array()}}, "invalid_value", "messages"},
      {{{"messages", "Hi"}}, "invalid_value", "messages"},
      {messages(7), "invalid_value", "messages[0]"},
      {messages({{"role", "king"}, {"content", "x"}}), "invalid_value", "messages[0].role"},
      {messages({{"content", "x"}}), "invalid_value", "messages[0].role"},
      {messages({{"role", "user"}}), "invalid_value", "messages[0].content"},
      {messages({{"role", "user"}, {"content", 7}}), "invalid_value", "messages[0].content"},
      {messages({{"role", "user"}, {"content", {{{"type", "image_url"}}}}}),
       "unsupported_parameter", "messages[0].content[0].type"},
      {messages({{"role", "user"}, {"content", "x"}, {"colour", 1}}), "unknown_parameter",
       "messages[0].colour"},
      {{{"tool_choice", "required"}}, "invalid_value", "tool_choice"},
      {{{"tools", {{{"type", "function"}}}}}, "invalid_value", "tools[0].function"},
      {{{"top_logprobs", 3}}, "invalid_value", "top_logprobs"},
      {{{"logprobs", true}, {"top_logprobs", 99}}, "invalid_value", "top_logprobs"},
      {{{"max_tokens", 3}, {"max_completion_tokens", 4}}, "invalid_value", "max_tokens"},
      {{{"functions", json::array({1})}}, "unsupported_parameter", "functions"},
      {{{"modalities", {"audio"}}}, "unsupported_parameter", "modalities"},
      {{{"echo", true}}, "unsupported_parameter", "echo"},
      {{{"chat_template_kwargs", 3}}, "invalid_value", "chat_template_kwargs"},
      {{{"response_format", {{"type", "xml"}}}}, "invalid_value", "response_format.type"},
      {{{"response_format", {{"type", "json_object"}}}, {"guided_regex", "a"}},
       "invalid_value",
       "guided_regex"},
  };
  for (const auto& refusal : refusals) {
    const ApiAnswer answer = Refused(refusal.more);
    EXPECT_EQ(answer.code, 400) << refusal.more << answer.body;
    EXPECT_EQ(answer.Error()["code"], refusal.code) << refusal.more << answer.body;
    EXPECT_EQ(answer.Error()["param"], refusal.param) << refusal.more << answer.body;
  }
}

TEST_F(ChatTest, UnknownRolesAreToldTheKnownOnes) {
  const json messages = json::array({{{"role", "king"}, {"content", "x"}}});
  EXPECT_EQ(Refused({{"messages", messages}}).Error()["message"],
            "messages[0].role: \"king\", expected system, developer, user, assistant or tool");
}

TEST_F(ChatTest, CallsThatComeBackAreNamedAsTheClientWroteThem) {
  const auto param = [this](const json& function) {
    const json call = {{"id", "1"}, {"type", "function"}, {"function", function}};
    const json messages =
        json::array({{{"role", "user"}, {"content", "x"}},
                     {{"role", "assistant"}, {"tool_calls", json::array({call})}}});
    return Refused({{"messages", messages}}).Error()["param"];
  };
  EXPECT_EQ(param({{"name", "f"}, {"arguments", "{"}}),
            "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(param({{"name", "f"}}), "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(param({{"name", ""}, {"arguments", "{}"}}), "messages[1].tool_calls[0].function.name");
}

TEST_F(ChatTest, RefusedArraysHaveTheirLength) {
  EXPECT_EQ(Refused({{"messages", json::array()}}).Error()["message"],
            "messages: an array of 0, expected an array of 1..4096 messages");
  EXPECT_EQ(Refused({{"n", json::array({1, 2})}}).Error()["message"],
            "n: an array of 2, expected an integer of 32 bits");
}

TEST_F(ChatTest, FieldsAtTheValuesThatChangeNothingPass) {
  const json more = {
      {"functions", json::array()}, {"modalities", json::array({"text"})}, {"verbosity", "medium"}};
  EXPECT_EQ(Generate(kPath, Body(more), "Hello").code, 200);
}

TEST_F(ChatTest, OnlyFieldsThatASwitchLetsThroughNameIt) {
  EXPECT_THAT(Refused({{"colour", 1}}).body, HasSubstr("--unknown-fields ignore"));
  const ApiAnswer inner = Refused({{"lowkey", {{"colour", 1}}}});
  EXPECT_EQ(inner.Error()["param"], "lowkey.colour") << inner.body;
  EXPECT_THAT(inner.body, testing::Not(HasSubstr("--unknown-fields")));
}

TEST_F(ChatTest, CallsOfToolsAreTakenOut) {
  // The format is the one that the template speaks of.
  ServeTemplate("<tool_call>{{ messages[0].content }}{{ tools | tojson }}");
  const json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const std::string text =
      "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n</tool_call>";
  const json body = Body({{"tools", {tool}}});
  const json choice = Generate(kPath, body, text).Json()["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "Let me see.");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(
      json::parse(choice["message"]["tool_calls"][0]["function"]["arguments"].get<std::string>()),
      json({{"a", {1}}}));
  json streamed = body;
  streamed["stream"] = true;
  std::string arguments, content, name, end;
  for (const std::string& event : Generate(kPath, streamed, text).Events()) {
    const json chunk = json::parse(event, nullptr, false);
    if (!chunk.is_object() || chunk["choices"].empty()) continue;
    const json& delta = chunk["choices"][0]["delta"];
    content += delta.value("content", "");
    // openai-python takes the entries of a chunk for as many calls.
    EXPECT_LE(delta.value("tool_calls", json::array()).size(), 1u) << delta;
    for (const json& call : delta.value("tool_calls", json::array())) {
      name += call["function"].value("name", "");
      arguments += call["function"]["arguments"].get<std::string>();
    }
    if (chunk["choices"][0]["finish_reason"].is_string())
      end = chunk["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(name, "f");
  EXPECT_EQ(json::parse(arguments), json({{"a", {1}}}));
  EXPECT_EQ(content, "Let me see.");
  EXPECT_EQ(end, "tool_calls");
}

TEST_F(ChatTest, AByteOrderMarkIsRefused) {
  const json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  for (const char* path : {kPath, "/tokenize", "/v1/responses", "/v1/completions"}) {
    const ApiAnswer answer = Send("POST", path, "\xEF\xBB\xBF" + Body({{"tools", {tool}}}).dump());
    EXPECT_EQ(answer.code, 400) << path;
    EXPECT_THAT(answer.body, HasSubstr("byte order mark")) << path;
  }
}

TEST_F(ChatTest, UnknownFieldsMayBeIgnored) {
  server_.reset();
  ServerOptions options = {.port = 0};
  options.openai.unknown_fields = UnknownFields::kIgnored;
  Serve(options);
  EXPECT_EQ(Generate(kPath, Body({{"nobody_knows", 1}}), "x").code, 200);
}

}  // namespace
}  // namespace lowkey
