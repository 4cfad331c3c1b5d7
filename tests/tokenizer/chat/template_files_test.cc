#include "tokenizer/chat/template_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temp_directory.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

constexpr auto kUnusable = absl::StatusCode::kFailedPrecondition;
using Tools = ChatTemplates::Tools;

class TemplateFilesTest : public ::testing::Test {
 protected:
  // Returns what the directory's template for conversations, with tools or without, writes.
  absl::StatusOr<std::string> Write(Tools tools = Tools::kNone) {
    const ChatTemplates templates = ChatTemplates::FromDirectory(directory_.path());
    const absl::StatusOr<ChatTemplate>& found = templates.Find(tools);
    if (!found.ok()) return found.status();
    return found->Render({})->text;
  }

  void File(const std::string& name, const std::string& content) {
    WriteFileOrDie(directory_.File(name), content);
  }

  TempDirectory directory_;
};

TEST_F(TemplateFilesTest, NoFilesAreNoTemplate) {
  EXPECT_THAT(Write(), FailsWith(kUnusable, "the model has no chat template"));
  File("tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_THAT(Write(), FailsWith(kUnusable, "--chat-template FILE"));
}

TEST_F(TemplateFilesTest, StringInTheTokenizersConfig) {
  File("tokenizer_config.json", R"({"chat_template": "{{ 1 + 1 }}"})");
  EXPECT_EQ(*Write(), "2");
  EXPECT_EQ(*Write(Tools::kSome), "2");
}

TEST_F(TemplateFilesTest, NamedTemplatesForToolsAndWithout) {
  File("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "other"}]})");
  EXPECT_EQ(*Write(), "plain");
  EXPECT_EQ(*Write(Tools::kSome), "tools");
}

TEST_F(TemplateFilesTest, OwnFileWinsOverTheConfigs) {
  File("chat_template.json", R"({"chat_template": "third"})");
  EXPECT_EQ(*Write(), "third");
  File("tokenizer_config.json", R"({"chat_template": "second"})");
  EXPECT_EQ(*Write(), "second");
  File("chat_template.jinja", "first");
  EXPECT_EQ(*Write(), "first");
}

TEST_F(TemplateFilesTest, FilesOfAnotherShapeAreTheTemplatesError) {
  File("tokenizer_config.json", "[");
  EXPECT_THAT(Write(), FailsWith(kUnusable, "tokenizer_config.json: not JSON"));
  File("tokenizer_config.json", R"({"chat_template": 7})");
  EXPECT_THAT(Write(), FailsWith(kUnusable, "expected a string or a list of objects"));
  File("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THAT(Write(), FailsWith(kUnusable, "expected a string or a list of objects"));
}

TEST_F(TemplateFilesTest, TemplateThatDoesNotParseIsAnErrorOfItsOwn) {
  File("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "ok"},
      {"name": "tool_use", "template": "{% extends 'x' %}"}]})");
  EXPECT_EQ(*Write(), "ok");
  EXPECT_THAT(Write(Tools::kSome), FailsWith(kUnusable, "statement {% extends %}: not supported"));
}

TEST_F(TemplateFilesTest, FaultTellsOfTemplatesThatAreThere) {
  const auto fault = [this] { return ChatTemplates::FromDirectory(directory_.path()).Fault(); };
  EXPECT_TRUE(fault().ok());
  File("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "ok"},
      {"name": "tool_use", "template": "{% extends 'x' %}"}]})");
  EXPECT_THAT(std::string(fault().message()), testing::HasSubstr("not supported"));
  File("chat_template.jinja", "{% include 'x' %}");
  EXPECT_THAT(std::string(fault().message()), testing::HasSubstr("not supported"));
  File("chat_template.jinja", "ok");
  EXPECT_TRUE(fault().ok());
}

TEST_F(TemplateFilesTest, LargeTemplateIsRefused) {
  File("chat_template.jinja", std::string((1 << 20) + 1, 'x'));
  EXPECT_THAT(Write(), FailsWith(kUnusable, "chat_template.jinja"));
}

}  // namespace
}  // namespace lowkey
