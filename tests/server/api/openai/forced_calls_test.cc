// Calls of tools that `tool_choice` asks for, and reasoning, over a real server whose engine the test
// plays.
#include <gmock/gmock.h>

#include <future>

#include "tests/server/api/openai/openai_testing.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPath[] = "/v1/chat/completions";
constexpr char kHermes[] = "<tool_call>{{ messages[0].content }}{{ tools | tojson }}";
constexpr char kCall[] = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
constexpr char kOther[] = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";

json ToolOf(const std::string& name, json parameters) {
  json tool = {{"type", "function"}, {"function", {{"name", name}}}};
  if (!parameters.is_null()) tool["function"]["parameters"] = std::move(parameters);
  return tool;
}

json Named(const std::string& name) {
  return {{"type", "function"}, {"function", {{"name", name}}}};
}

json Allowed(const std::string& mode, const std::vector<std::string>& names) {
  json tools = json::array();
  for (const std::string& name : names) tools.push_back(Named(name));
  return {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", mode}, {"tools", tools}}}};
}

class ForcedCallsTest : public OpenAiTest {
 protected:
  static json Body(const json& more = json::object()) {
    const json parameters = {{"type", "object"},
                             {"properties", {{"a", {{"type", "integer"}}}}},
                             {"required", {"a"}},
                             {"additionalProperties", false}};
    json body = {{"model", "tales"},
                 {"messages", json::array({{{"role", "user"}, {"content", "Hi"}}})},
                 {"tools", json::array({ToolOf("f", parameters), ToolOf("g", nullptr)})}};
    body.update(more);
    return body;
  }

  // Posts; `constraint` becomes that of the engine's request, which answers with `text`.
  json Ask(const json& body, const std::string& text,
           std::shared_ptr<const TokenConstraintFactory>& constraint) {
    auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body.dump()); });
    const bool runs = engine_.WaitForRunning(1);
    if (runs && !engine_.ids().empty()) {
      constraint = engine_.request(engine_.ids()[0]).constraint;
      Play(engine_.ids()[0], text);
    }
    const ApiAnswer got = answer.get();
    EXPECT_EQ(got.code, 200) << got.body;
    return got.code == 200 ? got.Json()["choices"][0] : json::object();
  }

  // Whether the constraint of such a request lets the text through as a whole.
  bool LetsThrough(const json& body, const std::string& text) {
    std::shared_ptr<const TokenConstraintFactory> factory;
    Ask(body, "x", factory);
    if (factory == nullptr) return true;
    const std::unique_ptr<TokenConstraint> constraint = factory->Begin();
    for (const int32_t token : BytePieces(text)) {
      if (!constraint->Advance(token).ok()) return false;
    }
    return constraint->Advance(TestTokenizer().eos_ids()[0]).ok();
  }
};

TEST_F(ForcedCallsTest, RequiredTextsAreCallsOfAnyOfTheTools) {
  ServeTemplate(kHermes);
  const json body = Body({{"tool_choice", "required"}});
  EXPECT_TRUE(LetsThrough(body, kCall));
  EXPECT_TRUE(LetsThrough(body, kOther));
  EXPECT_TRUE(LetsThrough(body, std::string(kCall) + "\n" + kOther));
  EXPECT_FALSE(LetsThrough(body, "Let me see."));
  EXPECT_FALSE(LetsThrough(body, std::string("Let me see.") + kCall));
  EXPECT_FALSE(LetsThrough(body, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"));
  EXPECT_FALSE(LetsThrough(body, "<tool_call>{\"name\": \"h\", \"arguments\": {}}</tool_call>"));
  const json single = Body({{"tool_choice", "required"}, {"parallel_tool_calls", false}});
  EXPECT_TRUE(LetsThrough(single, kCall));
  EXPECT_FALSE(LetsThrough(single, std::string(kCall) + "\n" + kOther));
  EXPECT_TRUE(LetsThrough(Body(), "Let me see."));
}

TEST_F(ForcedCallsTest, ANamedToolIsCalledOnce) {
  ServeTemplate(kHermes);
  const json body = Body({{"tool_choice", Named("g")}});
  EXPECT_TRUE(LetsThrough(body, kOther));
  EXPECT_FALSE(LetsThrough(body, kCall));
  EXPECT_FALSE(LetsThrough(body, std::string(kOther) + kOther));
}

TEST_F(ForcedCallsTest, OnlyAllowedToolsAreCalled) {
  ServeTemplate(kHermes);
  const json body = Body({{"tool_choice", Allowed("required", {"g"})}});
  EXPECT_TRUE(LetsThrough(body, kOther));
  EXPECT_TRUE(LetsThrough(body, std::string(kOther) + "\n" + kOther));
  EXPECT_FALSE(LetsThrough(body, kCall));
  EXPECT_FALSE(LetsThrough(body, "Let me see."));
}

TEST_F(ForcedCallsTest, TheTemplateSeesOnlyAllowedTools) {
  ServeTemplate("<tool_call>{% for tool in tools %}({{ tool.function.name }}){% endfor %}");
  const auto prompt = [this](const json& choice) {
    std::shared_ptr<const TokenConstraintFactory> constraint;
    std::string text;
    auto answer = std::async(std::launch::async, [&] {
      return Send("POST", kPath, Body({{"tool_choice", choice}}).dump());
    });
    if (!engine_.WaitForRunning(1)) return text;
    text = TestTokenizer().Decode(engine_.request(engine_.ids()[0]).prompt).value_or("");
    EXPECT_EQ(engine_.request(engine_.ids()[0]).constraint, nullptr);
    Play(engine_.ids()[0], "Hello");
    EXPECT_EQ(answer.get().code, 200);
    return text;
  };
  EXPECT_THAT(prompt("auto"), HasSubstr("(f)(g)"));
  EXPECT_THAT(prompt(Allowed("auto", {"g"})), AllOf(HasSubstr("(g)"), Not(HasSubstr("(f)"))));
  EXPECT_THAT(prompt(Allowed("auto", {"g", "f"})), HasSubstr("(f)(g)"));
}

TEST_F(ForcedCallsTest, ToolsThatTheTemplateDoesNotTakeAreRefusedUnlessCallsAreForced) {
  ServeTemplate("<tool_call>{{ messages[0].content }}{# tools #}");
  for (const json& choice : {json(), json("auto"), Allowed("auto", {"g"})}) {
    const ApiAnswer answer = Send("POST", kPath, Body({{"tool_choice", choice}}).dump());
    EXPECT_EQ(answer.code, 400) << choice << answer.body;
    EXPECT_EQ(answer.Error()["type"], "invalid_request_error") << answer.body;
    EXPECT_EQ(answer.Error()["param"], "tools") << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("the model's chat template does not take tools"));
  }
  for (const json& choice : {json("none"), json("required"), Named("f")}) {
    EXPECT_EQ(Generate(kPath, Body({{"tool_choice", choice}}), kCall).code, 200) << choice;
  }
  EXPECT_EQ(Generate(kPath, Body({{"tools", json::array()}}), "x").code, 200);
}

TEST_F(ForcedCallsTest, AFreeAnswerHasOneCallWhereOnlyOneIsWanted) {
  ServeTemplate(kHermes);
  const std::string text = std::string("Two: ") + kCall + "\n" + kOther + " Done.";
  const json both = Generate(kPath, Body(), text).Json()["choices"][0];
  EXPECT_EQ(both["message"]["tool_calls"].size(), 2u) << both;
  const json single = Body({{"parallel_tool_calls", false}});
  const json one = Generate(kPath, single, text).Json()["choices"][0];
  ASSERT_EQ(one["message"]["tool_calls"].size(), 1u) << one;
  EXPECT_EQ(one["message"]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(one["message"]["content"], both["message"]["content"]);
  EXPECT_EQ(one["finish_reason"], "tool_calls");
}

TEST_F(ForcedCallsTest, EveryFormatHasItsCalls) {
  const struct {
    const char* chat_template;
    const char* text;
  } styles[] = {
      {"[TOOL_CALLS]{{ messages[0].content }}",
       "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}]"},
      {"[TOOL_CALLS][ARGS]{{ messages[0].content }}", "[TOOL_CALLS]f[ARGS]{\"a\": 1}"},
      {"<|python_tag|>{{ '\"parameters\"' }}",
       "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}"},
      // A template that teaches no calls.
      {"{{ messages[0].content }}", "{\"name\": \"f\", \"parameters\": {\"a\": 1}}"},
  };
  for (const auto& [chat_template, text] : styles) {
    ServeTemplate(chat_template);
    const json body = Body({{"tool_choice", "required"}});
    EXPECT_TRUE(LetsThrough(body, text)) << text;
    EXPECT_FALSE(LetsThrough(body, "Hello")) << text;
    std::shared_ptr<const TokenConstraintFactory> constraint;
    json choice = Ask(body, text, constraint);
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["name"], "f") << choice;
    EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a\": 1}") << choice;
    EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
  }
}

TEST_F(ForcedCallsTest, FinishReasonsAreOpenAis) {
  ServeTemplate(kHermes);
  const auto finish = [this](const json& choice, FinishReason reason) {
    const json answer =
        Generate(kPath, Body({{"tool_choice", choice}}), kCall, 1, reason).Json()["choices"][0];
    EXPECT_EQ(answer["message"]["tool_calls"].size(), 1u) << answer;
    return answer["finish_reason"];
  };
  EXPECT_EQ(finish("auto", FinishReason::kStopToken), "tool_calls");
  EXPECT_EQ(finish("required", FinishReason::kStopToken), "tool_calls");
  EXPECT_EQ(finish("required", FinishReason::kLength), "length");
  EXPECT_EQ(finish(Named("f"), FinishReason::kStopToken), "stop");
}

TEST_F(ForcedCallsTest, CallsAreStreamed) {
  ServeTemplate(kHermes);
  const json body = Body({{"tool_choice", "required"}, {"stream", true}});
  std::map<int, std::string> names, arguments;
  json end;
  const ApiAnswer answer = Generate(kPath, body, std::string(kCall) + "\n" + kOther);
  for (const std::string& event : answer.Events()) {
    const json chunk = json::parse(event, nullptr, false);
    if (!chunk.is_object() || chunk["choices"].empty()) continue;
    for (const json& call : chunk["choices"][0]["delta"].value("tool_calls", json::array())) {
      names[call["index"]] += call["function"].value("name", "");
      arguments[call["index"]] += call["function"]["arguments"].get<std::string>();
    }
    if (!chunk["choices"][0]["finish_reason"].is_null()) end = chunk["choices"][0]["finish_reason"];
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{0, "f"}, {1, "g"}}));
  EXPECT_EQ(arguments, (std::map<int, std::string>{{0, "{\"a\": 1}"}, {1, "{}"}}));
  EXPECT_EQ(end, "tool_calls");
}

TEST_F(ForcedCallsTest, ChunksWithoutNewsAreNotSent) {
  ServeTemplate(kHermes);
  json body = Body({{"tool_choice", "required"}, {"stream", true}, {"logprobs", true}});
  const size_t n_tokens = BytePieces(kCall).size();
  size_t n_logprobs = 0;
  for (const std::string& event : Generate(kPath, body, kCall).Events()) {
    const json chunk = json::parse(event, nullptr, false);
    if (chunk.is_object()) n_logprobs += chunk["choices"][0]["logprobs"]["content"].size();
  }
  EXPECT_EQ(n_logprobs, n_tokens);
  body.erase("logprobs");
  size_t n_empty = 0;
  for (const std::string& event : Generate(kPath, body, kCall).Events()) {
    const json chunk = json::parse(event, nullptr, false);
    if (!chunk.is_object() || chunk["choices"][0]["finish_reason"].is_string()) continue;
    const json& delta = chunk["choices"][0]["delta"];
    if (delta.contains("tool_calls") || delta.contains("role")) continue;
    n_empty += delta.value("content", "").empty();
  }
  EXPECT_EQ(n_empty, 0u);
}

TEST_F(ForcedCallsTest, TheServersFormatWins) {
  ServeTemplate(kHermes, {.tool_format = ToolFormat::kLlama3});
  const std::string llama = "{\"name\": \"f\", \"parameters\": {\"a\": 1}}";
  EXPECT_TRUE(LetsThrough(Body({{"tool_choice", "required"}}), llama));
  EXPECT_FALSE(LetsThrough(Body({{"tool_choice", "required"}}), kCall));
  EXPECT_EQ(Generate(kPath, Body(), llama).Json()["choices"][0]["finish_reason"], "tool_calls");
  ServeTemplate(kHermes, {.tool_format = ToolFormat::kNone});
  const json choice = Generate(kPath, Body(), kCall).Json()["choices"][0];
  EXPECT_EQ(choice["message"]["content"], kCall);
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(ForcedCallsTest, AnAnswerMayBeginInReasoning) {
  ServeTemplate("{{ messages[0].content }}{{ tools | tojson }}<tool_call><think>\n");
  const json required = Body({{"tool_choice", "required"}});
  const std::string thought = "Which one? </think>\n\n";
  EXPECT_TRUE(LetsThrough(required, thought + kCall));
  EXPECT_FALSE(LetsThrough(required, kCall));
  EXPECT_FALSE(LetsThrough(required, thought + "Hello"));
  for (const json& body : {required, Body()}) {
    std::shared_ptr<const TokenConstraintFactory> constraint;
    json message = Ask(body, thought + kCall, constraint)["message"];
    EXPECT_EQ(message["reasoning_content"], "Which one?") << message;
    EXPECT_TRUE(message["content"].is_null()) << message;
    EXPECT_EQ(message["tool_calls"].size(), 1u) << message;
  }
  const json usage = Generate(kPath, Body(), thought + kCall).Json()["usage"];
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"],
            TestTokenizer().Encode("Which one?", {.add_bos = false})->size());
  // Without tools, too.
  json plain = Body();
  plain.erase("tools");
  std::shared_ptr<const TokenConstraintFactory> constraint;
  json message = Ask(plain, thought + "Hello", constraint)["message"];
  EXPECT_EQ(message["reasoning_content"], "Which one?") << message;
  EXPECT_EQ(message["content"], "Hello") << message;
  // But a form of the answer is content from the first byte on.
  plain["response_format"] = {{"type", "json_object"}};
  EXPECT_EQ(Ask(plain, "{}", constraint)["message"]["content"], "{}");
}

TEST_F(ForcedCallsTest, ATemplateMayLeaveReasoningToTheModel) {
  ServeTemplate("{{ messages[0].content }}<tool_call>{# </think> #}");
  const json required = Body({{"tool_choice", "required"}});
  EXPECT_TRUE(LetsThrough(required, std::string("<think>Hm.</think>\n\n") + kCall));
  EXPECT_TRUE(LetsThrough(required, kCall));
  EXPECT_FALSE(LetsThrough(required, std::string("Hm.</think>\n\n") + kCall));
  ServeTemplate(kHermes);
  EXPECT_FALSE(LetsThrough(required, std::string("<think>Hm.</think>\n\n") + kCall));
}

TEST_F(ForcedCallsTest, RefusalsSayWhat) {
  ServeTemplate(kHermes);
  json long_schema = {{"description", std::string(70000, 'x')}};
  json deep = json::object();
  for (int i = 0; i < 20; ++i) deep = {{"properties", {{"a", deep}}}, {"required", {"a"}}};
  deep["not"] = json::object();
  const struct {
    json more;
    const char* code;
    const char* param;
  } refusals[] = {
      {{{"tool_choice", "always"}}, "invalid_value", "tool_choice"},
      {{{"tool_choice", "required"}, {"tools", nullptr}}, "invalid_value", "tool_choice"},
      {{{"tool_choice", "required"}, {"tools", json::array()}}, "invalid_value", "tool_choice"},
      {{{"tool_choice", Named("h")}}, "invalid_value", "tool_choice.function.name"},
      {{{"tool_choice", {{"type", "function"}}}}, "invalid_value", "tool_choice.function"},
      {{{"tool_choice", {{"type", "function"}, {"function", json::object()}}}},
       "invalid_value",
       "tool_choice.function.name"},
      {{{"tool_choice", {{"type", "custom"}}}}, "unsupported_parameter", "tool_choice.type"},
      {{{"tool_choice", {{"type", "allowed_tools"}}}},
       "invalid_value",
       "tool_choice.allowed_tools"},
      {{{"tool_choice", Allowed("sometimes", {"f"})}},
       "invalid_value",
       "tool_choice.allowed_tools.mode"},
      {{{"tool_choice", Allowed("auto", {})}}, "invalid_value", "tool_choice.allowed_tools.tools"},
      {{{"tool_choice", Allowed("auto", {"f", "h"})}},
       "invalid_value",
       "tool_choice.allowed_tools.tools[1].function.name"},
      {{{"tool_choice", "required"}, {"response_format", {{"type", "json_object"}}}},
       "invalid_value",
       "tool_choice"},
      {{{"tool_choice", "required"}, {"guided_regex", "a"}}, "invalid_value", "tool_choice"},
      {{{"tool_choice", "required"}, {"ignore_eos", true}}, "invalid_value", "ignore_eos"},
      {{{"parallel_tool_calls", 3}}, "invalid_value", "parallel_tool_calls"},
      {{{"tool_choice", "required"}, {"tools", {ToolOf("a b", nullptr)}}},
       "invalid_value",
       "tools[0].function.name"},
      {{{"tool_choice", "required"}, {"tools", {ToolOf("f", {{"not", json::object()}})}}},
       "invalid_value",
       "tools[0].function.parameters"},
      {{{"tool_choice", Named("g")},
        {"tools", {ToolOf("f", {{"not", json::object()}}), ToolOf("g", {{"type", "string"}})}}},
       "invalid_value",
       "tools[1].function.parameters"},
      {{{"tool_choice", "required"}, {"tools", {ToolOf("f", deep)}}},
       "invalid_value",
       "tools[0].function.parameters"},
      {{{"tool_choice", "required"}, {"tools", {ToolOf("f", long_schema)}}},
       "invalid_value",
       "tools"},
  };
  for (const auto& refusal : refusals) {
    const ApiAnswer answer = Send("POST", kPath, Body(refusal.more).dump());
    EXPECT_EQ(answer.code, 400) << answer.body;
    EXPECT_EQ(answer.Error()["code"], refusal.code) << answer.body;
    EXPECT_EQ(answer.Error()["param"], refusal.param) << answer.body;
  }
  const ApiAnswer named = Send("POST", kPath, Body({{"tool_choice", Named("h")}}).dump());
  EXPECT_THAT(named.Error()["message"].get<std::string>(),
              HasSubstr("\"h\", expected the name of one of the tools"));
}

TEST_F(ForcedCallsTest, SchemasThatNobodyHasToFollowAreNotCompiled) {
  ServeTemplate(kHermes);
  const json tools = {ToolOf("f", {{"not", json::object()}}), ToolOf("g", nullptr)};
  EXPECT_EQ(Generate(kPath, Body({{"tools", tools}}), "x").code, 200);
  EXPECT_EQ(Generate(kPath, Body({{"tools", tools}, {"tool_choice", Named("g")}}), kOther).code,
            200);
}

TEST_F(ForcedCallsTest, MembersOfArgumentsComeInTheOrderOfTheSchema) {
  ServeTemplate(kHermes);
  const std::string body =
      R"({"model": "tales", "messages": [{"role": "user", "content": "Hi"}],
          "tool_choice": "required", "tools": [ {"type": "function", "function": {"name": "f"}} ,
          {"type": "function", "function": {"name": "g", "parameters": {"type": "object",
          "properties": {"zebra": {"const": 1}, "ant": {"const": 2}},
          "required": ["zebra", "ant"], "additionalProperties": false}}}]})";
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const auto factory = engine_.request(engine_.ids()[0]).constraint;
  Play(engine_.ids()[0], kOther);
  EXPECT_EQ(answer.get().code, 200);
  ASSERT_NE(factory, nullptr);
  const auto constraint = factory->Begin();
  for (const int32_t token :
       BytePieces("<tool_call>{\"name\": \"g\", \"arguments\": {\"zebra\": 1, \"ant\": 2}}")) {
    ASSERT_TRUE(constraint->Advance(token).ok());
  }
}

}  // namespace
}  // namespace lowkey
