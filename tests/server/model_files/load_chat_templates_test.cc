#include "server/model_files/load_chat_templates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/gguf_builder.h"
#include "tests/testing/temp_directory.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

constexpr auto kUnusable = absl::StatusCode::kFailedPrecondition;
using Tools = ChatTemplates::Tools;

absl::StatusOr<std::string> Write(const ChatTemplates& templates, Tools tools = Tools::kNone) {
  const absl::StatusOr<ChatTemplate>& found = templates.Find(tools);
  if (!found.ok()) return found.status();
  return found->Render({})->text;
}

TEST(LoadChatTemplatesTest, ReadsAGgufFilesMetadata) {
  const TempDirectory directory;
  GgufBuilder gguf = TinyGguf();
  WriteFileOrDie(directory.File("m.gguf"), gguf.Build());
  EXPECT_THAT(Write(LoadChatTemplates(OpenModelFiles(directory.File("m.gguf")).value())),
              FailsWith(kUnusable, "the model has no chat template"));
  gguf.String("tokenizer.chat_template", "{{ 'plain' }}");
  gguf.String("tokenizer.chat_template.tool_use", "tools");
  WriteFileOrDie(directory.File("m.gguf"), gguf.Build());
  for (const std::string& path : {directory.File("m.gguf"), directory.path()}) {
    EXPECT_EQ(*Write(LoadChatTemplates(OpenModelFiles(path).value())), "plain");
    EXPECT_EQ(*Write(LoadChatTemplates(OpenModelFiles(path).value()), Tools::kSome), "tools");
  }
}

TEST(LoadChatTemplatesTest, GgufTemplateThatIsNotUtf8IsTheTemplatesError) {
  const TempDirectory directory;
  GgufBuilder gguf = TinyGguf();
  gguf.String("tokenizer.chat_template", "a\xff");
  WriteFileOrDie(directory.File("m.gguf"), gguf.Build());
  EXPECT_THAT(Write(LoadChatTemplates(OpenModelFiles(directory.path()).value())),
              FailsWith(kUnusable, "not UTF-8"));
}

TEST(LoadChatTemplatesTest, ReadsADirectorysFiles) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("config.json"), "{}");
  WriteFileOrDie(directory.File("chat_template.jinja"), "own");
  EXPECT_EQ(*Write(LoadChatTemplates(OpenModelFiles(directory.path()).value())), "own");
}

TEST(LoadChatTemplatesTest, FileThatIsAskedForMustBeUsable) {
  const TempDirectory directory;
  const std::string file = directory.File("t.jinja");
  EXPECT_EQ(ReadChatTemplate(file).status().code(), absl::StatusCode::kNotFound);
  WriteFileOrDie(file, "\n{% block x %}");
  EXPECT_THAT(ReadChatTemplate(file),
              FailsWith(kUnusable, "t.jinja: chat template: line 2: statement {% block %}"));
  WriteFileOrDie(file, "fine");
  const auto templates = ReadChatTemplate(file);
  ASSERT_THAT(templates, IsOk());
  EXPECT_EQ(*Write(*templates), "fine");
}

}  // namespace
}  // namespace lowkey
