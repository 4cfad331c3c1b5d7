#include "tokenizer/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

Conversation Hello() { return {.messages = {{.role = "user", .content = "Hello"}}}; }

absl::StatusOr<RenderedChat> Render(const std::string& source, const Conversation& conversation,
                                    const TemplateContext& context = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(conversation, context);
}

TEST(ChatTemplateTest, ContentIsTheUsersAndRolesAreTheTemplates) {
  const auto chat = Render("{{ messages[0].role }}:{{ messages[0].content }}\n\n", Hello());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(chat->text, "user:Hello\n");
  ASSERT_EQ(chat->user_ranges.size(), 1u);
  EXPECT_EQ(chat->user_ranges[0].begin, 5u);
  EXPECT_EQ(chat->user_ranges[0].end, 10u);
}

TEST(ChatTemplateTest, ToolsNamesArgumentsAndVariablesAreTheUsers) {
  Conversation conversation = Hello();
  conversation.messages[0].name = "Ann";
  conversation.messages[0].tool_calls = {{"7", "f", "{\"x\": \"y\"}"}};
  conversation.tools_json = "[{\"name\": \"f\"}]";
  conversation.variables_json = "{\"mood\": \"calm\"}";
  for (const char* expression : {"messages[0].name", "messages[0].tool_calls[0].function.name",
                                 "messages[0].tool_calls[0].function.arguments | tojson",
                                 "messages[0].tool_calls[0].id", "tools[0] | tojson", "mood"}) {
    const auto chat = Render(std::string("{{ ") + expression + " }}", conversation);
    ASSERT_TRUE(chat.ok()) << chat.status();
    ASSERT_EQ(chat->user_ranges.size(), 1u) << expression;
    EXPECT_EQ(chat->user_ranges[0].end - chat->user_ranges[0].begin, chat->text.size());
  }
}

TEST(ChatTemplateTest, SpecialTokensAreTheTemplates) {
  const auto chat =
      Render("{{ bos_token }}|{{ eos_token }}|{{ messages[0].tool_calls is defined }}", Hello(),
             {.bos_token = "<s>", .eos_token = "</s>"});
  EXPECT_EQ(chat->text, "<s>|</s>|False");
  EXPECT_TRUE(chat->user_ranges.empty());
}

TEST(ChatTemplateTest, WhatIsNotThereIsNoneOrUndefinedAsInTransformers) {
  const auto chat = Render(
      "{{ tools is none }}{{ documents is none }}{{ bos_token is defined }}"
      "{{ messages[0].name is defined }}{{ add_generation_prompt }}",
      Hello());
  EXPECT_EQ(chat->text, "TrueTrueFalseFalseTrue");
}

TEST(ChatTemplateTest, VariablesCannotReplaceMessages) {
  Conversation conversation = Hello();
  conversation.variables_json = R"({"messages": [], "tools": [1], "add_generation_prompt": false})";
  const auto chat =
      Render("{{ messages | length }}{{ tools }}{{ add_generation_prompt }}", conversation);
  EXPECT_EQ(chat->text, "1NoneTrue");
}

TEST(ChatTemplateTest, TellsWhetherItNamesTools) {
  for (const char* source : {"{{ tools }}", "{% if tools %}x{% endif %}", "{{ x if tools else y }}",
                             "{% for t in tools | list %}{{ t }}{% endfor %}"}) {
    EXPECT_TRUE(ChatTemplate::Parse(source)->names_tools()) << source;
  }
  for (const char* source : {"", "tools", "{# tools #}", "{{ 'tools' }}", "{{ tools_in_user }}"}) {
    EXPECT_FALSE(ChatTemplate::Parse(source)->names_tools()) << source;
  }
}

TEST(ChatTemplateTest, ErrorsNameTheirField) {
  Conversation conversation = Hello();
  conversation.variables_json = "[]";
  EXPECT_THAT(Render("", conversation).status(), IsInvalid("variables_json: expected a JSON obj"));
  conversation.variables_json = "{";
  EXPECT_THAT(Render("", conversation).status(), IsInvalid("variables_json: byte 2: malformed"));
  conversation = Hello();
  conversation.tools_json = "nope";
  EXPECT_THAT(Render("", conversation).status(), IsInvalid("tools_json: byte"));
  EXPECT_THAT(Render("\n{{ a.b }}", Hello()).status(),
              IsInvalid("chat template: line 2: .b: 'a' is undefined"));
  EXPECT_THAT(ChatTemplate::Parse("{% x %}").status(),
              IsInvalid("chat template: line 1: statement"));
}

TEST(ChatTemplateTest, ShowsTheTimeItIsGiven) {
  const auto chat =
      Render("{{ strftime_now('%d %b %Y') }}", Hello(),
             {.now = absl::FromCivil(absl::CivilDay(2026, 3, 4), absl::UTCTimeZone())});
  EXPECT_EQ(chat->text, "04 Mar 2026");
}

}  // namespace
}  // namespace lowkey
