// POST /v1/responses over a real server.
#include <gmock/gmock.h>

#include <algorithm>
#include <future>

#include "tests/server/api/openai/openai_testing.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPath[] = "/v1/responses";

class ResponsesTest : public OpenAiTest {
 protected:
  static json Body(const json& more = json::object()) {
    json body = {{"model", "tales"}, {"input", "Hi"}};
    if (more.is_object()) body.update(more);
    return body;
  }
  json Whole(const json& more, const std::string& text,
             FinishReason reason = FinishReason::kStopToken) {
    const ApiAnswer answer = Generate(kPath, Body(more), text, 1, reason);
    EXPECT_EQ(answer.code, 200) << answer.body;
    return answer.Json();
  }
  // The events of a stream, whose numbers and names it checks.
  std::vector<json> Streamed(json more, const std::string& text,
                             FinishReason reason = FinishReason::kStopToken) {
    more["stream"] = true;
    return EventsOf(Generate(kPath, Body(more), text, 1, reason));
  }
  static std::vector<json> EventsOf(const ApiAnswer& answer) {
    std::vector<json> events;
    for (const std::string& data : answer.Events()) {
      const json event = json::parse(data, nullptr, false);
      EXPECT_EQ(event["sequence_number"], events.size()) << data;
      EXPECT_THAT(answer.body,
                  HasSubstr("event: " + event["type"].get<std::string>() + "\ndata: "));
      events.push_back(event);
    }
    return events;
  }
  static std::vector<std::string> TypesOf(const std::vector<json>& events) {
    std::vector<std::string> types;
    for (const json& event : events) types.push_back(event["type"]);
    return types;
  }

  std::string PromptOf(const json& more) { return OpenAiTest::PromptOf(kPath, Body(more)); }
};

TEST_F(ResponsesTest, WholeAnswerIsAResponse) {
  const json response = Whole({{"max_output_tokens", 8},
                               {"instructions", "be kind"},
                               {"metadata", {{"k", "v"}}},
                               {"user", "u"},
                               {"store", true},
                               {"temperature", 0.5}},
                              "hello");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["id"].get<std::string>().rfind("resp_", 0), 0u);
  EXPECT_GT(response["created_at"], 0);
  EXPECT_EQ(response["status"], "completed");
  EXPECT_TRUE(response["error"].is_null());
  EXPECT_TRUE(response["incomplete_details"].is_null());
  ASSERT_EQ(response["output"].size(), 1u);
  EXPECT_EQ(response["output"][0]["type"], "message");
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hello");
  EXPECT_EQ(response["usage"]["output_tokens"], 5);
  EXPECT_EQ(response["usage"]["total_tokens"], 5 + response["usage"]["input_tokens"].get<int>());
  EXPECT_TRUE(response["usage"]["input_tokens_details"].contains("cached_tokens"));
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
  EXPECT_EQ(response["lowkey"]["attention"]["mechanism"], "standard");
  const json echo = {{"model", "tales"},
                     {"instructions", "be kind"},
                     {"max_output_tokens", 8},
                     {"metadata", {{"k", "v"}}},
                     {"user", "u"},
                     {"store", false},
                     {"temperature", 0.5},
                     {"top_p", 1.0},
                     {"tools", json::array()},
                     {"tool_choice", "auto"},
                     {"truncation", "disabled"},
                     {"parallel_tool_calls", true},
                     {"background", false},
                     {"text", {{"format", {{"type", "text"}}}}}};
  for (const auto& [key, value] : echo.items()) EXPECT_EQ(response[key], value) << key;
}

TEST_F(ResponsesTest, TextThatIsCutIsIncomplete) {
  const json response = Whole({}, "hel", FinishReason::kLength);
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"], json({{"reason", "max_output_tokens"}}));
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(Streamed({}, "hel", FinishReason::kLength).back()["type"], "response.incomplete");
}

TEST_F(ResponsesTest, StreamHasTypedEvents) {
  const std::vector<json> events = Streamed({}, "ab");
  std::vector<std::string> types = TypesOf(events);
  // A slow reader gets several tokens in one event.
  std::string text;
  for (const json& event : events) {
    if (event["type"] == "response.output_text.delta") text += event["delta"];
  }
  EXPECT_EQ(text, "ab");
  types.erase(std::unique(types.begin(), types.end()), types.end());
  EXPECT_THAT(types,
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done",
                          "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], json::array());
  EXPECT_TRUE(events[0]["response"]["usage"].is_null());
  const json& last = events.back()["response"];
  EXPECT_EQ(last["id"], events[0]["response"]["id"]);
  EXPECT_EQ(last["status"], "completed");
  EXPECT_EQ(last["output"][0]["content"][0]["text"], "ab");
  EXPECT_EQ(last["usage"]["output_tokens"], 2);
  EXPECT_EQ(last["lowkey"]["attention"]["mechanism"], "standard");
}

TEST_F(ResponsesTest, LinesOfTheRequestDoNotBreakEvents) {
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath,
                "{\"model\": \"tales\", \"input\": \"Hi\", \"stream\": true,\n\n"
                "\"metadata\": {\n\n\"a\":\r\n\"b\\n\\n\"}, \"instructions\": \"one\\n\\ntwo\"}");
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  Play(engine_.ids()[0], "x\n\ny");
  const std::vector<json> events = EventsOf(answer.get());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["response"]["metadata"]["a"], "b\n\n");
  EXPECT_EQ(events.back()["response"]["instructions"], "one\n\ntwo");
}

TEST_F(ResponsesTest, ErrorAfterTheBeginFailsTheResponse) {
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath, Body({{"stream", true}}).dump());
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const RequestId id = engine_.ids()[0];
  SampledToken token;
  token.token = BytePieces("a")[0];
  engine_.Emit(id, token, 0);
  engine_.Finish(id, FinishReason::kCancelled, absl::InternalError("the device is lost"));
  const std::vector<json> events = EventsOf(answer.get());
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"],
            json({{"code", "internal_error"}, {"message", "the device is lost"}}));
}

TEST_F(ResponsesTest, InputItemsAreTheConversation) {
  EXPECT_EQ(PromptOf({}), "<user>Hi<assistant>");
  EXPECT_GT(n_new_tokens_, 1900) << "an answer may fill the context";
  EXPECT_EQ(PromptOf({{"instructions", "be kind"}, {"max_output_tokens", 5}}),
            "<system>be kind<user>Hi<assistant>");
  EXPECT_EQ(n_new_tokens_, 5);
  const json input = {
      {{"role", "developer"}, {"content", "short"}},
      {{"type", "message"},
       {"role", "user"},
       {"content",
        {{{"type", "input_text"}, {"text", "a"}}, {{"type", "input_text"}, {"text", "b"}}}}},
      // What an earlier answer had, as clients send it back.
      {{"type", "reasoning"},
       {"id", "rs_1"},
       {"summary", json::array()},
       {"content", json::array()}},
      {{"type", "message"},
       {"id", "msg_1"},
       {"status", "completed"},
       {"role", "assistant"},
       {"content",
        {{{"type", "output_text"},
          {"text", "c"},
          {"annotations", json::array()},
          {"logprobs", json::array()}}}}},
      {{"role", "user"}, {"content", "d"}}};
  EXPECT_EQ(PromptOf({{"input", input}}), "<system>short<user>a\nb<assistant>c<user>d<assistant>");
}

TEST_F(ResponsesTest, CallsAndTheirOutputsReachTheTemplate) {
  ServeTemplate(
      "{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} "
      "{{ c.function.arguments | tojson }}]{% endfor %}{{ m.tool_call_id or '' }}{% endfor %}"
      "{% if tools %}{{ tools | tojson }}{% endif %}");
  const json input = {
      {{"role", "user"}, {"content", "a"}},
      {{"role", "assistant"}, {"content", "b"}},
      {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{\"x\": 1}"}},
      {{"type", "function_call"},
       {"id", "fc_2"},
       {"status", "completed"},
       {"call_id", "c2"},
       {"name", "g"},
       {"arguments", ""}},
      {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "one"}},
      {{"type", "function_call_output"},
       {"call_id", "c2"},
       {"output", {{{"type", "input_text"}, {"text", "two"}}}}}};
  EXPECT_EQ(PromptOf({{"input", input}}),
            "<user>a<assistant>b[c1 f {\"x\": 1}][c2 g {}]<tool>onec1<tool>twoc2");
}

TEST_F(ResponsesTest, ReasoningReachesTheTemplateWithWhatItLedTo) {
  ServeTemplate(
      "{% for m in messages %}<{{ m.role }}>"
      "{% if m.reasoning_content is string %}({{ m.reasoning_content }}){% endif %}"
      "{{ m.content or '' }}"
      "{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}");
  const auto reasoning = [](json content) {
    return json{
        {"type", "reasoning"}, {"id", "r"}, {"summary", json::array()}, {"content", content}};
  };
  const auto text = [](const char* t) {
    return json::array({{{"type", "reasoning_text"}, {"text", t}}});
  };
  const auto call = [](const char* name) {
    return json{{"type", "function_call"}, {"call_id", "c"}, {"name", name}, {"arguments", "{}"}};
  };
  const json input = {{{"role", "user"}, {"content", "a"}},
                      reasoning(text("one")),
                      call("f"),
                      call("g"),
                      {{"type", "function_call_output"}, {"call_id", "c"}, {"output", "x"}},
                      reasoning(text("two")),
                      {{"role", "assistant"}, {"content", "b"}},
                      reasoning(text("three")),
                      call("h"),
                      reasoning(json::array()),
                      call("i"),
                      reasoning(text("unused")),
                      {{"role", "user"}, {"content", "c"}},
                      {{"role", "assistant"}, {"content", "d"}}};
  EXPECT_EQ(PromptOf({{"input", input}}),
            "<user>a<assistant>(one)[f][g]<tool>x<assistant>(two)b<assistant>(three)[h][i]"
            "<user>c<assistant>d");
}

TEST_F(ResponsesTest, ToolsReachTheTemplateAsThoseOfChatsDo) {
  const std::string body =
      R"({"model": "tales", "input": "Hi", "tools": [{"name": "f", "type" : "function",)"
      R"( "parameters": {"zebra": 1, "ant": [2, {"type": "x"}]}, "strict": true}]})";
  auto answer = std::async(std::launch::async, [&] { return Send("POST", kPath, body); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  const EngineRequest request = engine_.request(engine_.ids()[0]);
  EXPECT_THAT(TestTokenizer().Decode(request.prompt).value(),
              HasSubstr(R"([{"type": "function", "function": {"name": "f", "parameters": )"
                        R"({"zebra": 1, "ant": [2, {"type": "x"}]}, "strict": true}}])"));
  Play(engine_.ids()[0], "x");
  const json response = answer.get().Json();
  EXPECT_EQ(response["tools"], json::parse(body)["tools"]);
  json none = json::parse(body);
  none["tool_choice"] = "none";
  EXPECT_EQ(PromptOf(none), "<user>Hi<assistant>");
}

TEST_F(ResponsesTest, CallsOfToolsAreItems) {
  ServeTemplate("<tool_call>{{ messages[0].content }}{{ tools | tojson }}");
  const json more = {{"tools", {{{"type", "function"}, {"name", "f"}}}}};
  const std::string text =
      "<think>\nhm\n</think>\n\nLet me see.\n"
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n</tool_call>";
  const json output = Whole(more, text)["output"];
  ASSERT_EQ(output.size(), 3u) << output;
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_THAT(output[0]["content"][0]["text"].get<std::string>(), HasSubstr("hm"));
  EXPECT_EQ(output[1]["content"][0]["text"], "Let me see.");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_EQ(json::parse(output[2]["arguments"].get<std::string>()), json({{"a", {1}}}));
  EXPECT_EQ(output[2]["call_id"].get<std::string>().rfind("call_", 0), 0u);
  const std::vector<json> events = Streamed(more, text);
  std::string arguments;
  for (const json& event : events) {
    if (event["type"] == "response.function_call_arguments.delta") arguments += event["delta"];
  }
  EXPECT_EQ(output[2]["arguments"], arguments);
  const json& streamed = events.back()["response"]["output"];
  ASSERT_EQ(streamed.size(), 3u);
  EXPECT_EQ(streamed[1]["content"], output[1]["content"]);
  EXPECT_EQ(streamed[2]["arguments"], output[2]["arguments"]);
}

TEST_F(ResponsesTest, NamedCallsAreForced) {
  const json more = {{"tools", {{{"type", "function"}, {"name", "f"}}}},
                     {"tool_choice", {{"type", "function"}, {"name", "f"}}}};
  auto answer =
      std::async(std::launch::async, [&] { return Send("POST", kPath, Body(more).dump()); });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  EXPECT_NE(engine_.request(engine_.ids()[0]).constraint, nullptr);
  Play(engine_.ids()[0], "{\"name\": \"f\", \"parameters\": {}}");
  const json output = answer.get().Json()["output"];
  ASSERT_EQ(output.size(), 1u) << output;
  EXPECT_EQ(output[0]["type"], "function_call");
  EXPECT_EQ(output[0]["name"], "f");
  EXPECT_EQ(output[0]["arguments"], "{}");
}

TEST_F(ResponsesTest, AllowedToolsAreThoseOfChats) {
  const json f = {{"type", "function"}, {"name", "f"}}, g = {{"type", "function"}, {"name", "g"}};
  const auto body = [&](const json& choice) {
    return Body({{"tools", {f, g}}, {"tool_choice", choice}}).dump();
  };
  auto answer = std::async(std::launch::async, [&] {
    return Send("POST", kPath,
                body({{"type", "allowed_tools"}, {"mode", "required"}, {"tools", {g}}}));
  });
  ASSERT_TRUE(engine_.WaitForRunning(1));
  EXPECT_NE(engine_.request(engine_.ids()[0]).constraint, nullptr);
  Play(engine_.ids()[0], "{\"name\": \"g\", \"parameters\": {}}");
  EXPECT_EQ(answer.get().Json()["output"][0]["name"], "g");
  const struct {
    json choice;
    const char* param;
  } refusals[] = {
      {{{"type", "allowed_tools"}}, "tool_choice.mode"},
      {{{"type", "allowed_tools"}, {"mode", "auto"}}, "tool_choice.tools"},
      {{{"type", "allowed_tools"}, {"tools", {g}}}, "tool_choice.mode"},
      {{{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {{{"type", "function"}}}}},
       "tool_choice.tools[0].name"},
      {{{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", {f}}, {"more", 1}},
       "tool_choice.more"},
  };
  for (const auto& [choice, param] : refusals) {
    const ApiAnswer refusal = Send("POST", kPath, body(choice));
    EXPECT_EQ(refusal.code, 400) << refusal.body;
    EXPECT_EQ(refusal.Error()["param"], param) << refusal.body;
  }
}

TEST_F(ResponsesTest, FormsOfTheTextAreThoseOfChats) {
  const json schema = {{"type", "object"},
                       {"properties", {{"a", {{"type", "integer"}}}}},
                       {"required", {"a"}},
                       {"additionalProperties", false}};
  const json formats[] = {
      {{"type", "text"}},
      {{"type", "json_object"}},
      {{"type", "json_schema"}, {"name", "n"}, {"strict", true}, {"schema", schema}}};
  for (const json& format : formats) {
    auto answer = std::async(std::launch::async, [&] {
      return Send("POST", kPath, Body({{"text", {{"format", format}}}}).dump());
    });
    ASSERT_TRUE(engine_.WaitForRunning(1)) << format;
    const EngineRequest request = engine_.request(engine_.ids()[0]);
    EXPECT_EQ(request.constraint != nullptr, format["type"] != "text");
    Play(engine_.ids()[0], "{\"a\":1}");
    EXPECT_EQ(answer.get().Json()["text"]["format"], format);
  }
}

TEST_F(ResponsesTest, RefusalsSayWhat) {
  const auto item = [](json value) { return json{{"input", json::array({value})}}; };
  const auto format = [](json value) { return json{{"text", {{"format", value}}}}; };
  const auto tool = [](json value) { return json{{"tools", json::array({value})}}; };
  const struct {
    json more;
    const char* code;
    const char* param;
  } refusals[] = {
      {{{"previous_response_id", "resp_1"}}, "unsupported_parameter", "previous_response_id"},
      {{{"conversation", "conv_1"}}, "unsupported_parameter", "conversation"},
      {{{"background", true}}, "unsupported_parameter", "background"},
      {{{"include", {"message.output_text.logprobs"}}}, "unsupported_parameter", "include"},
      {{{"prompt", {{"id", "x"}}}}, "unsupported_parameter", "prompt"},
      {{{"truncation", "auto"}}, "unsupported_parameter", "truncation"},
      {{{"reasoning", {{"effort", "low"}}}}, "unsupported_parameter", "reasoning"},
      {{{"n", 2}}, "unsupported_parameter", "n"},
      {{{"max_tokens", 3}}, "unsupported_parameter", "max_tokens"},
      {{{"nobody_knows", 1}}, "unknown_parameter", "nobody_knows"},
      {{{"metadata", {{"a", 1}}}}, "invalid_value", "metadata"},
      {{{"metadata", {{"a", std::string(513, 'x')}}}}, "invalid_value", "metadata"},
      {{{"max_output_tokens", 0}}, "invalid_value", "max_output_tokens"},
      {{{"max_output_tokens", 1000000}}, "context_length_exceeded", "max_output_tokens"},
      {{{"temperature", 9}}, "invalid_value", "temperature"},
      {{{"instructions", 7}}, "invalid_value", "instructions"},
      {{{"input", nullptr}}, "invalid_value", "input"},
      {{{"input", json::array()}}, "invalid_value", "input"},
      {item(7), "invalid_value", "input[0]"},
      {item({{"role", "king"}, {"content", "x"}}), "invalid_value", "input[0].role"},
      {item({{"content", "x"}}), "invalid_value", "input[0].role"},
      {item({{"role", "user"}}), "invalid_value", "input[0].content"},
      {item({{"role", "user"}, {"content", {{{"type", "input_image"}}}}}), "unsupported_parameter",
       "input[0].content[0].type"},
      {item({{"role", "user"}, {"content", "x"}, {"colour", 1}}), "unknown_parameter",
       "input[0].colour"},
      {item({{"type", "item_reference"}, {"id", "msg_1"}}), "unsupported_parameter",
       "input[0].type"},
      {item({{"type", "function_call"}, {"name", "f"}, {"arguments", "{}"}}), "invalid_value",
       "input[0].call_id"},
      {item({{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}}), "invalid_value",
       "input[0].arguments"},
      {item({{"type", "function_call"}, {"call_id", "c"}, {"name", "f"}, {"arguments", "{"}}),
       "invalid_value", "input[0].arguments"},
      {item({{"type", "function_call_output"}, {"call_id", "c"}}), "invalid_value",
       "input[0].output"},
      {tool({{"type", "web_search"}}), "unsupported_parameter", "tools[0].type"},
      {tool({{"type", "function"}}), "invalid_value", "tools[0].name"},
      {tool({{"type", "function"}, {"name", "f"}, {"parameters", 3}}), "invalid_value",
       "tools[0].parameters"},
      {{{"tools", "all"}}, "invalid_value", "tools"},
      {{{"tool_choice", 3}}, "invalid_value", "tool_choice"},
      {{{"tools", {{{"type", "function"}, {"name", "f"}}}},
        {"tool_choice", {{"type", "function"}, {"name", "g"}}}},
       "invalid_value",
       "tool_choice.name"},
      {{{"tools", {{{"type", "function"}, {"name", "f"}}}},
        {"tool_choice", "required"},
        {"text", {{"format", {{"type", "json_object"}}}}}},
       "invalid_value",
       "tool_choice"},
      {{{"text", 3}}, "invalid_value", "text"},
      {{{"text", {{"verbosity", "low"}}}}, "unsupported_parameter", "text.verbosity"},
      {format({{"type", "xml"}}), "invalid_value", "text.format.type"},
      {format({{"type", "json_schema"}, {"name", "n"}}), "invalid_value", "text.format.schema"},
      {{{"response_format", {{"type", "json_object"}}}},
       "unsupported_parameter",
       "response_format"},
      {{{"text", {{"format", {{"type", "json_object"}}}}}, {"guided_regex", "a"}},
       "invalid_value",
       "guided_regex"},
  };
  for (const auto& refusal : refusals) {
    const ApiAnswer answer = Send("POST", kPath, Body(refusal.more).dump());
    EXPECT_EQ(answer.code, 400) << refusal.more << answer.body;
    EXPECT_EQ(answer.Error()["code"], refusal.code) << refusal.more << answer.body;
    EXPECT_EQ(answer.Error()["param"], refusal.param) << refusal.more << answer.body;
  }
}

TEST_F(ResponsesTest, AnswersAreNotKept) {
  EXPECT_EQ(Get("/v1/responses/resp_1").Error()["code"], "unsupported_endpoint");
  EXPECT_EQ(Get("/v1/responses").code, 405);
}

}  // namespace
}  // namespace lowkey
