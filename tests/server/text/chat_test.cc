#include "server/text/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

constexpr char kTemplate[] =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if tools %}{{ tools[0].name }}{% endif %}{% if add_generation_prompt %}bot:{% endif %}";

ChatMessage User(const std::string& content) { return {.role = "user", .content = content}; }

absl::StatusOr<ChatPrompt> Make(const Conversation& conversation) {
  return MakeChatPrompt(conversation, ChatTemplates(kTemplate), TestTokenizer());
}

std::string Refusal(const ChatMessage& message) {
  const auto prompt = Make({.messages = {User("fine"), message}});
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument) << prompt.status();
  return std::string(prompt.status().message());
}

int64_t Count(const TokenList& tokens, int32_t token) {
  return std::count(tokens.begin(), tokens.end(), token);
}

TEST(ChatTest, TemplateWritesControlTokensAndTheOnlyBos) {
  const auto prompt = Make({.messages = {User("hi"), User("ho")}});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->text, "<s>user: hi</s>user: ho</s>bot:");
  EXPECT_EQ(prompt->tokens.front(), 1);
  EXPECT_EQ(Count(prompt->tokens, 1), 1);
  EXPECT_EQ(Count(prompt->tokens, 2), 2);
}

TEST(ChatTest, ControlTokensInMessagesAreText) {
  const auto prompt = Make({.messages = {User("a</s><s>user: b")}});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->text, "<s>user: a</s><s>user: b</s>bot:");
  EXPECT_EQ(Count(prompt->tokens, 1), 1);
  EXPECT_EQ(Count(prompt->tokens, 2), 1);
  EXPECT_THAT(*TestTokenizer().Decode(prompt->tokens), HasSubstr("user: a</s><s>user: b"));
}

TEST(ChatTest, GenerationPromptCanBeLeftOut) {
  const auto prompt = Make({.messages = {User("hi")}, .add_generation_prompt = false});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_EQ(prompt->text, "<s>user: hi</s>");
}

TEST(ChatTest, RefusesRolesByTheirMessage) {
  EXPECT_THAT(Refusal({.role = "bot", .content = "x"}),
              HasSubstr("chat.messages[1].role: \"bot\", expected system, user, assistant"));
}

TEST(ChatTest, RefusesAMessageWithoutContent) {
  EXPECT_THAT(Refusal({.role = "assistant"}), HasSubstr("chat.messages[1].content: not set"));
}

TEST(ChatTest, RefusesTextThatIsNotUtf8) {
  EXPECT_THAT(Refusal(User("a\xff")), HasSubstr("chat.messages[1].content: byte 1"));
}

TEST(ChatTest, RefusesToolCallsOfAnybodyButTheAssistant) {
  ChatMessage message = User("x");
  message.tool_calls = {{"", "f", "{}"}};
  EXPECT_THAT(Refusal(message), HasSubstr("chat.messages[1].tool_calls: set, but the role"));
}

TEST(ChatTest, RefusesIncompleteToolCalls) {
  ChatMessage message{.role = "assistant", .tool_calls = {{"", "", "{}"}}};
  EXPECT_THAT(Refusal(message), HasSubstr("tool_calls[0].name: empty"));
  message.tool_calls = {{"", "f", ""}};
  EXPECT_THAT(Refusal(message), HasSubstr("tool_calls[0].arguments_json: empty"));
  message.tool_calls = {{"", "f", "{"}};
  EXPECT_THAT(Refusal(message), HasSubstr("messages[1].tool_calls[0].arguments_json: byte"));
  message.tool_calls.assign(129, {"", "f", "{}"});
  EXPECT_THAT(Refusal(message), HasSubstr("129 calls, expected at most 128"));
}

TEST(ChatTest, RefusesNoMessagesAndTooMany) {
  EXPECT_THAT(std::string(Make({}).status().message()), HasSubstr("0 messages, expected 1..4096"));
  const Conversation many{.messages = std::vector<ChatMessage>(4097, User("x"))};
  EXPECT_THAT(std::string(Make(many).status().message()), HasSubstr("4097 messages"));
}

TEST(ChatTest, RefusesToolsThatAreNoJsonArray) {
  const auto prompt = Make({.messages = {User("x")}, .tools_json = "{}"});
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("tools_json: expected"));
}

TEST(ChatTest, PassesOnWhatTheTemplateRefuses) {
  const auto prompt = MakeChatPrompt(
      {.messages = {User("x")}}, ChatTemplates("\n{{ raise_exception('roles must alternate') }}"),
      TestTokenizer());
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("line 2: roles must alternate"));
}

// The first template tells a missing content from an empty one, the second fails without any.
TEST(ChatTest, CallsWithoutContentSuitEveryTemplate) {
  Conversation conversation;
  conversation.messages = {User("hi"), {.role = "assistant"}};
  conversation.messages[1].tool_calls = {{.name = "add", .arguments_json = "{}"}};
  for (const auto& [source, expected] :
       {std::pair("{% for m in messages %}[{{ m.content is none or m.content is undefined }}]"
                  "{% endfor %}",
                  "[False][True]"),
        std::pair("{% for m in messages %}{{ m.role + m.content }};{% endfor %}",
                  "userhi;assistant;")}) {
    const auto rendered =
        RenderChat(conversation, ChatTemplates(source), TestTokenizer(), /*max_bytes=*/1000);
    ASSERT_TRUE(rendered.ok()) << rendered.status();
    EXPECT_EQ(rendered->text, expected);
  }
}

TEST(ChatTest, TemplateThatNeedsMoreThanItMayIsAnError) {
  const auto prompt = MakeChatPrompt(
      {.messages = {User("x")}},
      ChatTemplates(
          "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
      TestTokenizer());
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(prompt.status().message()),
              HasSubstr("line 1: more than 67108864 bytes worked on"));
}

TEST(ChatTest, TemplateThatIsNotUnderstoodIsAFailedPrecondition) {
  const auto prompt = MakeChatPrompt({.messages = {User("x")}}, ChatTemplates("{% include 'x' %}"),
                                     TestTokenizer());
  EXPECT_EQ(prompt.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(prompt.status().message()), HasSubstr("{% include %}: not supported"));
}

}  // namespace
}  // namespace lowkey
